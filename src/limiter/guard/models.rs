//! Models of concurrent access to the guard's tables. `proof/README.md` lists the mutations that each model detects.

use std::sync::Arc;

use super::*;
use crate::algorithm::HOUR;
use crate::sync::model::{every_order, thread};

const NOW: Micros = Micros::new(1_700_000_000_000_000);

const ONE: Digest = Digest::from_bits(1);
const OTHER: Digest = Digest::from_bits(2 | 1 << 64);

fn offenders() -> Arc<Offenders> {
    Arc::new(Offenders::new(16, MINUTE, 2))
}

fn rules() -> AutoBlock {
    AutoBlock::of_names([PolicyName::new("api")]).threshold(2).within(MINUTE).block_for(HOUR)
}

#[test]
fn concurrent_denials_at_the_threshold_cause_one_block() {
    every_order(|| {
        let offenders = offenders();
        let deniers = [(); 2].map(|()| {
            let offenders = Arc::clone(&offenders);
            thread(move || offenders.denied(ONE, NOW, &rules()).is_some())
        });
        let blocked = deniers.map(|denier| denier.join().unwrap());
        assert_ne!(blocked[0], blocked[1]);
        assert!(offenders.has_blocks() && offenders.blocked(ONE, NOW).is_some());
    });
}

/// Calls skip the lookup while the count of blocks is 0.
#[test]
fn the_block_count_is_positive_while_a_block_is_active() {
    every_order(|| {
        let offenders = offenders();
        // The other digest is in a different bucket, so the two threads do not share a lock.
        let mut others = (2..).map(Digest::from_bits);
        let other = others.find(|id| offenders.bucket_number(*id) != offenders.bucket_number(ONE)).unwrap();
        offenders.block(ONE, NOW, NOW + HOUR, 1);
        let forgetting = {
            let offenders = Arc::clone(&offenders);
            thread(move || offenders.forget(ONE))
        };
        let blocking = {
            let offenders = Arc::clone(&offenders);
            thread(move || offenders.block(other, NOW, NOW + HOUR, 1))
        };
        forgetting.join().unwrap();
        blocking.join().unwrap();
        assert!(offenders.has_blocks());
        assert_eq!(offenders.len(NOW), (1, 1));
        offenders.forget(other);
        assert!(!offenders.has_blocks());
    });
}

#[test]
fn manual_blocks_are_visible_to_later_calls() {
    every_order(|| {
        let manual = Arc::new(ManualBlocks::default());
        manual.block(OTHER, NOW, NOW + HOUR);
        let blocking = {
            let manual = Arc::clone(&manual);
            thread(move || manual.block(ONE, NOW, NOW + HOUR))
        };
        // The same caller makes two calls. If the first call is blocked, the second is also blocked.
        let calling = {
            let manual = Arc::clone(&manual);
            thread(move || [(); 2].map(|()| manual.blocked(ONE, NOW).is_some()))
        };
        let other = {
            let manual = Arc::clone(&manual);
            thread(move || manual.unblock(OTHER))
        };
        let [first, second] = calling.join().unwrap();
        assert!(second || !first);
        assert!(blocking.join().unwrap());
        other.join().unwrap();
        assert!(manual.blocked(ONE, NOW).is_some() && manual.blocked(OTHER, NOW).is_none());
    });
}

#[test]
fn two_manual_blocks_on_the_same_caller_count_once() {
    every_order(|| {
        let manual = Arc::new(ManualBlocks::default());
        let blocking = [HOUR, 2 * HOUR].map(|lasts| {
            let manual = Arc::clone(&manual);
            thread(move || manual.block(ONE, NOW, NOW + lasts))
        });
        assert!(blocking.map(|thread| thread.join().unwrap()).iter().all(|accepted| *accepted));
        assert_eq!(manual.len(NOW), 1);
        manual.unblock(ONE);
        assert_eq!(manual.len(NOW), 0);
    });
}
