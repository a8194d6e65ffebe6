//! Taking and condensing samples.

use crate::failure::Failure;
use std::time::{Duration, Instant};

/// How much quiet comes before each sample.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// None.
    BackToBack,
    /// Two seconds: long enough for the kernel to forget what makes repetitions cheap, such as a
    /// recent grace period before a process moves into a cgroup.
    AfterQuiet,
}

impl Pace {
    /// As it is told in the name of a result.
    pub fn told(self) -> &'static str {
        match self {
            Self::BackToBack => "back to back",
            Self::AfterQuiet => "after 2 s of quiet",
        }
    }

    /// How many samples are taken of each side.
    fn samples(self) -> usize {
        match self {
            Self::BackToBack => 100,
            Self::AfterQuiet => 9,
        }
    }

    /// How many samples of one side come in a row before the other side's turn.
    fn in_a_row(self) -> usize {
        match self {
            Self::BackToBack => 20,
            Self::AfterQuiet => 1,
        }
    }
}

/// Something that measures itself once.
pub type Measured<'a> = &'a mut dyn FnMut() -> Result<Duration, Failure>;

/// The medians of two sides that take turns, in milliseconds.
///
/// # Errors
/// Those of the sides.
pub fn side_by_side(
    pace: Pace,
    own: Measured<'_>,
    peer: Measured<'_>,
) -> Result<(f64, f64), Failure> {
    let (mut own_samples, mut peer_samples) = (Vec::new(), Vec::new());
    while own_samples.len() < pace.samples() {
        take(pace, own, &mut own_samples)?;
        take(pace, peer, &mut peer_samples)?;
    }
    Ok((median_ms(own_samples), median_ms(peer_samples)))
}

/// The median of one side in milliseconds.
///
/// # Errors
/// Those of the side.
pub fn alone(pace: Pace, own: Measured<'_>) -> Result<f64, Failure> {
    let mut samples = Vec::new();
    while samples.len() < pace.samples() {
        take(pace, own, &mut samples)?;
    }
    Ok(median_ms(samples))
}

fn take(pace: Pace, side: Measured<'_>, samples: &mut Vec<Duration>) -> Result<(), Failure> {
    if pace == Pace::BackToBack {
        // The other side's turn left caches that are not this side's.
        side()?;
    }
    for _ in 0..pace.in_a_row() {
        if pace == Pace::AfterQuiet {
            std::thread::sleep(Duration::from_secs(2));
        }
        samples.push(side()?);
    }
    Ok(())
}

/// The median in milliseconds.
pub fn median_ms(mut samples: Vec<Duration>) -> f64 {
    samples.sort();
    samples[samples.len() / 2].as_secs_f64() * 1e3
}

/// How long something takes.
///
/// # Errors
/// Those of what is timed.
pub fn timed(action: impl FnOnce() -> Result<(), Failure>) -> Result<Duration, Failure> {
    let start = Instant::now();
    action()?;
    Ok(start.elapsed())
}
