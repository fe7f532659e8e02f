//! Random worlds and histories. They depend only on the seed.

use crate::mixing::shared::adapter;
use crate::mixing::shared::random::Random;
use crate::mixing::shared::terms::*;

const SECOND: Time = 1_000_000;
const PERIODS: [Time; 5] = [SECOND, 10 * SECOND, 60 * SECOND, 3600 * SECOND, 86_400 * SECOND];
const KEYS: u64 = 4;
/// 2026-01-01.
const START: Time = 1_767_225_600 * SECOND;

pub(super) fn generate(seed: u64) -> (World, Vec<Op>) {
    let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    (0..8).for_each(|_| _ = random.below(2));
    let mut generator =
        Generator { random, world: World { policies: Vec::new(), blocking: None, max_waiting: 4, start: START } };
    generator.build_world();
    let length = 20 + generator.below(180);
    let mut ops = Vec::new();
    while (ops.len() as u64) < length {
        ops.push(generator.operation());
        if generator.one_in(25) {
            generator.held_call(&mut ops);
        }
    }
    (generator.world, ops)
}

struct Generator {
    random: Random,
    world: World,
}

impl Generator {
    fn below(&mut self, bound: u64) -> u64 {
        self.random.below(bound)
    }

    fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }

    fn build_world(&mut self) {
        let policies = 1 + self.below(3);
        for name in ["a", "b", "c"].into_iter().take(policies as usize) {
            let policy = loop {
                let policy = self.policy(name);
                if adapter::is_valid(&policy) {
                    break policy;
                }
            };
            self.world.policies.push(policy);
        }
        if self.one_in(3) {
            let all = 0..self.world.policies.len();
            let policies = all.filter(|_| self.below(3) > 0).collect();
            self.world.blocking = Some(Blocking {
                policies,
                threshold: 1 + self.below(4) as u32,
                within: PERIODS[self.below(4) as usize],
                lasts: PERIODS[self.below(4) as usize],
                escalation: self.one_in(2).then(|| (2 + self.below(3) as u32, 3 * PERIODS[3])),
                resets_on_success: self.one_in(2),
                keys: self.below(4) > 0,
                ips: self.below(4) > 0,
            });
        }
        self.world.max_waiting = self.below(6) as usize;
        self.world.start = match self.below(40) {
            0 => adapter::LAST - self.below(200_000 * SECOND),
            _ => START + self.below(90_000 * SECOND),
        };
    }

    fn policy(&mut self, name: &str) -> PolicySpec {
        let on_failure = match self.below(4) {
            0 => OnFailure::Deny,
            1 => OnFailure::Allow,
            _ => OnFailure::Fallback(20 + self.below(81)),
        };
        let quotas = self.quotas(None);
        let kind = quotas[0].kind;
        let tiers = (0..self.below(3)).map(|_| self.quotas(Some(kind))).collect();
        PolicySpec { name: name.to_owned(), quotas, tiers, enforcement: self.enforcement(), on_failure, leases: false }
    }

    fn enforcement(&mut self) -> Enforcement {
        match self.below(6) {
            0 => Enforcement::Never,
            1 => Enforcement::Half,
            _ => Enforcement::Always,
        }
    }

    /// Generates quotas that apply together.
    fn quotas(&mut self, kind: Option<Kind>) -> Vec<Spec> {
        let (count, shards) = (1 + self.below(5) / 3, if self.one_in(4) { 2 + self.below(2) } else { 1 });
        let mut quotas: Vec<Spec> = Vec::new();
        for _ in 0..count {
            let quota = self.quota(kind, shards);
            if quotas.iter().all(|other| other.period != quota.period) {
                quotas.push(quota);
            }
        }
        quotas
    }

    fn quota(&mut self, kind: Option<Kind>, shards: u64) -> Spec {
        let any = [Kind::Bucket, Kind::Bucket, Kind::Fixed, Kind::Sliding][self.below(4) as usize];
        let kind = kind.unwrap_or(any);
        let rate = shards + self.below(20);
        let period = PERIODS[self.below(5) as usize];
        let capacity = if kind == Kind::Sliding || self.one_in(2) { rate } else { shards + self.below(30) };
        let max_reserved = match self.below(4) {
            _ if kind == Kind::Sliding => Some(0),
            0 | 1 => Some(0),
            2 => Some(shards + self.below(20)),
            _ => None,
        };
        Spec { kind, rate, period, capacity, max_reserved, shards, aligned: kind == Kind::Fixed && self.one_in(3) }
    }

    fn policy_number(&mut self) -> usize {
        self.below(self.world.policies.len() as u64) as usize
    }

    fn key(&mut self) -> Option<u8> {
        let key = self.below(KEYS);
        (key > 0).then_some(key as u8)
    }

    fn caller(&mut self, policy: usize) -> Caller {
        let key = self.key();
        // A key has mostly the same tier.
        let tier = match self.below(8) {
            0 => Some(self.below(3) as u8),
            _ => key.filter(|key| key % 2 == 0).map(|_| 0),
        };
        let kind = self.world.policies[policy].quotas[0].kind;
        let own = self.one_in(12).then(|| self.quotas(Some(kind)));
        Caller { key, tier, own }
    }

    fn charge(&mut self) -> ChargeOf {
        let policy = self.policy_number();
        let caller = self.caller(policy);
        let capacity = self.world.policies[policy].quotas[0].capacity;
        let cost = match self.below(10) {
            0 => 0,
            1..=5 => 1 + self.below(3),
            6..=8 => self.below(capacity + 3),
            _ => self.below(2 * capacity + 40),
        };
        ChargeOf { policy, caller, cost }
    }

    fn ip(&mut self) -> Option<u8> {
        self.one_in(3).then(|| self.below(2) as u8)
    }

    fn whom(&mut self) -> Whom {
        if self.one_in(3) { Whom::Ip(self.below(2) as u8) } else { Whom::Key(1 + self.below(KEYS - 1) as u8) }
    }

    fn lasts(&mut self) -> Time {
        let period = PERIODS[self.below(4) as usize];
        1 + self.below(2 * period)
    }

    fn call(&mut self) -> Op {
        let charge = self.charge();
        let waits = !matches!(self.world.policies[charge.policy].on_failure, OnFailure::Fallback(_));
        let ip = self.ip();
        let how = match self.below(16) {
            0..=5 => How::Limit,
            6..=7 => How::Check,
            8..=10 => How::Hold,
            11 => How::Reserve(None),
            12 => How::Reserve(Some(self.lasts())),
            // A fallback's waiting calls would wait by the system's clock.
            _ if waits => How::Wait(self.lasts()),
            _ => How::Hold,
        };
        let mut charges = vec![charge];
        let is_sharded = |generator: &Generator, policy: usize| {
            let policy = &generator.world.policies[policy];
            policy.quotas.iter().chain(policy.tiers.iter().flatten()).any(|quota| quota.shards > 1)
        };
        while !matches!(how, How::Wait(_)) && charges.len() < 3 && self.one_in(4) {
            let next = self.charge();
            // Two charges of one key to the same shards depend on which pairs are drawn, which the model does not know.
            let same = charges.iter().any(|of| (of.policy, of.caller.key) == (next.policy, next.caller.key));
            let own = |of: &ChargeOf| of.caller.own.iter().flatten().any(|quota| quota.shards > 1);
            if !(same && (is_sharded(self, next.policy) || charges.iter().chain([&next]).any(own))) {
                charges.push(next);
            }
        }
        Op::Call { charges, ip, how }
    }

    /// Adds a call that is held by a pause, during which settings change.
    fn held_call(&mut self, ops: &mut Vec<Op>) {
        let of = self.charge();
        let (policy, key, lasts) = (of.policy, of.caller.key, self.lasts());
        if matches!(self.world.policies[policy].on_failure, OnFailure::Fallback(_)) {
            return;
        }
        ops.push(Op::Pause { policy, key, lasts });
        ops.push(Op::Call { charges: vec![of], ip: self.ip(), how: How::Wait(lasts + self.lasts()) });
        let kind = Some(self.world.policies[policy].quotas[0].kind);
        ops.push(match self.below(4) {
            0 => Op::Deny { whom: Whom::Key(key.unwrap_or(1)), listed: true },
            1 => Op::SetEnforcement { policy, to: Some(self.enforcement()) },
            2 => self.operation(),
            _ => Op::SetQuota { policy, scope: Scope::All, quotas: Some(self.quotas(kind)) },
        });
        ops.push(Op::Forward(lasts));
    }

    fn operation(&mut self) -> Op {
        let pick = self.below(1 << 20);
        match self.below(100) {
            0..=44 => self.call(),
            45..=51 => Op::Settle { pick, actual: self.below(12), only_first: self.one_in(3) },
            52 => Op::ResetReceipt { pick },
            53..=54 => Op::Cancel { pick },
            55 => Op::Drop { pick },
            56..=60 => Op::Keep { pick },
            61..=62 => Op::StopWaiting { pick },
            63..=65 => {
                let policy = self.policy_number();
                Op::Credit { policy, caller: self.caller(policy), tokens: self.below(20) }
            }
            66 => {
                let policy = self.policy_number();
                Op::ResetKey { policy, caller: self.caller(policy) }
            }
            67 if self.one_in(2) => Op::ResetPolicy { policy: self.policy_number() },
            67..=70 => {
                let policy = self.policy_number();
                let scope = match self.below(3) {
                    0 => Scope::All,
                    1 => Scope::Tier(self.below(3) as u8),
                    _ => Scope::Key(self.key()),
                };
                let kind = self.world.policies[policy].quotas[0].kind;
                let kind = if self.one_in(8) { None } else { Some(kind) };
                Op::SetQuota { policy, scope, quotas: (!self.one_in(3)).then(|| self.quotas(kind)) }
            }
            71 => {
                Op::SetEnforcement { policy: self.policy_number(), to: (!self.one_in(3)).then(|| self.enforcement()) }
            }
            72..=73 => Op::Pause { policy: self.policy_number(), key: self.key(), lasts: self.lasts() },
            74 => Op::Resume { policy: self.policy_number(), key: self.key() },
            75 if self.one_in(2) => Op::Block { whom: self.whom(), lasts: self.lasts() },
            75..=76 => Op::Unblock { whom: self.whom() },
            77 => Op::Deny { whom: self.whom(), listed: self.one_in(3) },
            78..=79 => Op::Fail { failing: self.one_in(3) },
            80 if self.one_in(2) => Op::SaveAndLoad,
            80..=89 => Op::ToPromise(self.below(5) as i64 - 2),
            90 => Op::Back(self.lasts()),
            91 => Op::Back(self.below(1000)),
            92 => Op::Forward(PERIODS[self.below(5) as usize]),
            _ => Op::Forward(self.lasts()),
        }
    }
}
