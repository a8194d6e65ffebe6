//! Tables to BPF.
//!
//! One program per profile: a binary search over ranges of numbers with the same verdict, and a
//! program of `seccompiler` at each leaf whose verdict looks at arguments. A single chain of
//! comparisons, which `seccompiler` makes of a whole table, has two costs. The kernel runs every
//! system call number through a new filter once to find what is always allowed, so a chain of 400
//! takes about a millisecond at each launch and each command, where the search takes 0.1. And
//! such a filter has one error number, so several stacked ones would be needed, of which the last
//! installed wins a tie. `examples/cost.rs` measures it.

use crate::row::{Case, Errno, Row, Verdict};
use crate::{CompileError, Instruction};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};
use std::collections::BTreeMap;

const LOAD_WORD: u16 = 0x20;
const JUMP_ALWAYS: u16 = 0x05;
const JUMP_IF_EQUAL: u16 = 0x15;
const JUMP_IF_AT_LEAST: u16 = 0x35;
const RETURN: u16 = 0x06;

const OFFSET_OF_NUMBER: u32 = 0;
const OFFSET_OF_ARCH: u32 = 4;
const AUDIT_ARCH_X86_64: u32 = 0xc000_003e;

const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const ALLOW: u32 = 0x7fff_0000;

/// The x32 way of calling: other structures behind the same numbers, so none of our rows means
/// what it says.
const X32: u32 = 0x4000_0000;
/// What a tracer puts in place of a number to have the call left out: nothing is carried out, and
/// the program gets the result the tracer chose.
const LEFT_OUT: u32 = u32::MAX;

/// The numbers from `first` to the next leaf's `first`.
struct Leaf {
    first: u32,
    program: Vec<Instruction>,
}

/// Compiles rows, sorted by number and without duplicates.
pub fn compile(rows: &[Row]) -> Result<Vec<Instruction>, CompileError> {
    let leaves = leaves(rows)?;
    let mut program = vec![
        statement(LOAD_WORD, OFFSET_OF_ARCH),
        Instruction { code: JUMP_IF_EQUAL, jt: 1, jf: 0, k: AUDIT_ARCH_X86_64 },
        statement(RETURN, KILL_PROCESS),
        statement(LOAD_WORD, OFFSET_OF_NUMBER),
    ];
    program.extend(search(&leaves));
    Ok(program)
}

fn statement(code: u16, k: u32) -> Instruction {
    Instruction { code, jt: 0, jf: 0, k }
}

fn refusal(errno: Errno) -> u32 {
    ERRNO | u32::from(errno.number())
}

/// Cuts the range of all numbers into leaves; neighbours with the same program become one.
fn leaves(rows: &[Row]) -> Result<Vec<Leaf>, CompileError> {
    let unlisted = || vec![statement(RETURN, refusal(Errno::Nosys))];
    let mut leaves: Vec<Leaf> = Vec::new();
    let mut add = |first: u32, program: Vec<Instruction>| {
        if leaves.last().is_none_or(|last| last.program != program) {
            leaves.push(Leaf { first, program });
        }
    };
    let mut next = 0;
    for row in rows {
        if row.number > next {
            add(next, unlisted());
        }
        add(row.number, leaf_program(row)?);
        next = row.number + 1;
    }
    add(next, unlisted());
    add(X32, vec![statement(RETURN, KILL_PROCESS)]);
    add(LEFT_OUT, vec![statement(RETURN, ALLOW)]);
    Ok(leaves)
}

/// A binary search: the number is in the accumulator, every leaf returns.
fn search(leaves: &[Leaf]) -> Vec<Instruction> {
    if let [leaf] = leaves {
        return leaf.program.clone();
    }
    let (low, high) = leaves.split_at(leaves.len() / 2);
    let low_program = search(low);
    let high_first = high[0].first;
    let mut program = match u8::try_from(low_program.len()) {
        Ok(distance) => {
            vec![Instruction { code: JUMP_IF_AT_LEAST, jt: distance, jf: 0, k: high_first }]
        }
        // A conditional jump reaches 255 instructions, an unconditional one all of them.
        Err(_) => vec![
            Instruction { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: high_first },
            statement(JUMP_ALWAYS, u32::try_from(low_program.len()).unwrap_or(u32::MAX)),
        ],
    };
    program.extend(low_program);
    program.extend(search(high));
    program
}

fn leaf_program(row: &Row) -> Result<Vec<Instruction>, CompileError> {
    let allow = SeccompAction::Allow;
    let refuse = |errno: Errno| SeccompAction::Errno(u32::from(errno.number()));
    match row.verdict {
        Verdict::Allow => Ok(vec![statement(RETURN, ALLOW)]),
        Verdict::Refuse(errno) => Ok(vec![statement(RETURN, refusal(errno))]),
        Verdict::AllowOnly(cases, errno) => by_arguments(row, cases, allow, refuse(errno)),
        Verdict::RefuseOnly(cases, errno) => by_arguments(row, cases, refuse(errno), allow),
    }
}

/// A whole program of `seccompiler` for one number. Its jumps are relative and every path
/// returns, so it works wherever it is put.
fn by_arguments(
    row: &Row,
    cases: &[Case],
    matched: SeccompAction,
    unmatched: SeccompAction,
) -> Result<Vec<Instruction>, CompileError> {
    let failed = |cause| CompileError { syscall: row.name, cause };
    let rules: Vec<SeccompRule> =
        cases.iter().map(rule).collect::<Result<_, _>>().map_err(failed)?;
    let filter = SeccompFilter::new(
        BTreeMap::from([(i64::from(row.number), rules)]),
        unmatched,
        matched,
        TargetArch::x86_64,
    )
    .map_err(failed)?;
    let program = BpfProgram::try_from(filter).map_err(failed)?;
    Ok(program
        .into_iter()
        .map(|i| Instruction { code: i.code, jt: i.jt, jf: i.jf, k: i.k })
        .collect())
}

fn rule(case: &Case) -> Result<SeccompRule, seccompiler::BackendError> {
    let conditions = case.conditions.iter().map(|condition| {
        SeccompCondition::new(
            condition.argument,
            SeccompCmpArgLen::Dword,
            match condition.mask {
                u32::MAX => SeccompCmpOp::Eq,
                mask => SeccompCmpOp::MaskedEq(u64::from(mask)),
            },
            u64::from(condition.value),
        )
    });
    SeccompRule::new(conditions.collect::<Result<_, _>>()?)
}
