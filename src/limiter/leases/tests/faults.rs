//! The faults in the simulation.

use super::{BEGIN, Process, Simulation, WARM_UP};
use crate::algorithm::{Micros, SECOND};

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Fault {
    /// One message in twenty is lost.
    Loss,
    /// Every second, each process restarts with a probability of one half.
    Crashes,
    /// A quarter of the processes are cut off from the server for three seconds.
    Partition,
    /// The clocks of the processes run up to one percent too fast or too slow.
    Drift,
    /// After four seconds, a replica takes over. It lacks the writes made in the last 100 ms.
    Failover,
}

impl Simulation {
    pub(super) fn local(&self, process: usize, now: Micros) -> Micros {
        if self.setting.fault != Some(Fault::Drift) {
            return now;
        }
        let elapsed = now.since(BEGIN).as_micros() as i64;
        let percent = [-1, 0, 1][process % 3];
        Micros::new((BEGIN.get() as i64 + elapsed + elapsed * percent / 100) as u64)
    }

    pub(super) fn loses(&mut self, process: usize, now: Micros) -> bool {
        let elapsed = now.since(BEGIN + WARM_UP);
        match self.setting.fault {
            Some(Fault::Loss) => self.random.unit() < 0.05,
            Some(Fault::Partition) => process % 4 == 0 && elapsed > SECOND && elapsed < 4 * SECOND,
            _ => false,
        }
    }

    /// Injects crashes and failovers. Called every tenth of a second.
    pub(super) fn suffer(&mut self, now: Micros) {
        let tenths = now.since(BEGIN).as_millis() / 100;
        match self.setting.fault {
            Some(Fault::Crashes) if tenths % 10 == 5 => {
                for process in 0..self.processes.len() {
                    if self.random.unit() < 0.5 {
                        let Process { arrived, admitted, .. } = self.processes[process];
                        self.processes[process] = Process { arrived, admitted, ..Process::new(self.divided, now) };
                    }
                }
            }
            Some(Fault::Failover) if tenths == 40 => self.row = self.replica,
            _ => {}
        }
    }
}
