//! An interpreter for the instructions that filters use, and the seccomp verdicts in words.

use hangar_seccomp::{Instruction, Program};

pub const X86_64: u32 = 0xc000_003e;
pub const I386: u32 = 0x4000_0003;
pub const X32: u32 = 0x4000_0000;

/// What the kernel gives a filter: `struct seccomp_data`.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub number: u32,
    pub arch: u32,
    pub arguments: [u64; 6],
}

impl Call {
    pub fn new(number: u32, arguments: [u64; 6]) -> Self {
        Self { number, arch: X86_64, arguments }
    }

    fn word(&self, offset: u32) -> u32 {
        match offset {
            0 => self.number,
            4 => self.arch,
            16..64 => {
                let argument = self.arguments[(offset as usize - 16) / 8];
                if offset.is_multiple_of(8) { argument as u32 } else { (argument >> 32) as u32 }
            }
            _ => panic!("load at offset {offset}"),
        }
    }
}

/// What a filter does with a call.
pub struct Run {
    /// The raw verdict.
    pub action: u32,
    /// Instructions it took.
    pub steps: usize,
    /// Arguments were looked at; otherwise the kernel remembers the verdict by number.
    pub by_arguments: bool,
}

pub fn run(filter: &[Instruction], call: &Call) -> Run {
    let (mut accumulator, mut at, mut steps, mut by_arguments) = (0_u32, 0_usize, 0, false);
    loop {
        let instruction = filter[at];
        at += 1;
        steps += 1;
        let jump = |holds: bool| usize::from(if holds { instruction.jt } else { instruction.jf });
        match instruction.code {
            0x20 => {
                accumulator = call.word(instruction.k);
                by_arguments |= instruction.k >= 16;
            }
            0x54 => accumulator &= instruction.k,
            0x05 => at += instruction.k as usize,
            0x15 => at += jump(accumulator == instruction.k),
            0x25 => at += jump(accumulator > instruction.k),
            0x35 => at += jump(accumulator >= instruction.k),
            0x06 => return Run { action: instruction.k, steps, by_arguments },
            code => panic!("instruction code {code:#x}"),
        }
    }
}

/// The verdict of all filters: the kernel takes the strictest, and of equal ones the one
/// installed last.
pub fn verdict(program: &Program, call: &Call) -> String {
    let mut strictest = 0x7fff_0000;
    for filter in program.filters.iter().rev() {
        let action = run(filter, call).action;
        if ((action & 0xffff_0000) as i32) < ((strictest & 0xffff_0000) as i32) {
            strictest = action;
        }
    }
    words(strictest)
}

pub fn words(action: u32) -> String {
    match (action & 0xffff_0000, action & 0xffff) {
        (0x7fff_0000, _) => "allow".to_owned(),
        (0x8000_0000, _) => "kill".to_owned(),
        (0x0005_0000, 1) => "EPERM".to_owned(),
        (0x0005_0000, 38) => "ENOSYS".to_owned(),
        (0x0005_0000, 95) => "EOPNOTSUPP".to_owned(),
        (0x0005_0000, 97) => "EAFNOSUPPORT".to_owned(),
        _ => panic!("verdict {action:#x}"),
    }
}
