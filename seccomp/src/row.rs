//! What a row of a filter table says.

/// The error number a refused call returns; the call itself is not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Errno {
    /// `EPERM`: programs ask for this right and go on without it.
    Perm,
    /// `ENOSYS`: as on a kernel without the call; C libraries fall back to an older one.
    Nosys,
    /// `EAFNOSUPPORT`: as on a kernel without the address family.
    Afnosupport,
    /// `EOPNOTSUPP`: as on a file system without the flag.
    Opnotsupp,
}

impl Errno {
    /// The number, as the kernel gives it on x86-64.
    pub const fn number(self) -> u16 {
        match self {
            Self::Perm => 1,
            Self::Nosys => 38,
            Self::Opnotsupp => 95,
            Self::Afnosupport => 97,
        }
    }

    /// The name, such as `EPERM`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Perm => "EPERM",
            Self::Nosys => "ENOSYS",
            Self::Opnotsupp => "EOPNOTSUPP",
            Self::Afnosupport => "EAFNOSUPPORT",
        }
    }
}

/// `argument & mask == value`, on the low 32 bits of the argument.
///
/// The kernel reads `int` and `unsigned int` arguments from the low half of a register and never
/// looks at the high half. A filter that compared all 64 bits would let `TIOCSTI` with garbage
/// above bit 31 through (CVE-2019-10063), so 64-bit comparison is not offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Condition {
    /// Which argument, counted from 0.
    pub argument: u8,
    /// The bits to look at.
    pub mask: u32,
    /// What they have to be.
    pub value: u32,
}

/// A condition on a whole 32-bit argument.
pub const fn is(argument: u8, value: u32) -> Condition {
    Condition { argument, mask: u32::MAX, value }
}

/// A condition on some bits of an argument.
pub const fn bits(argument: u8, mask: u32, value: u32) -> Condition {
    Condition { argument, mask, value }
}

/// Conditions that have to hold together, and what they describe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Case {
    /// What a call with these arguments is, such as "a TCP socket".
    pub what: &'static str,
    /// All of them have to hold.
    pub conditions: &'static [Condition],
}

/// Conditions that have to hold together, and what they describe.
pub const fn case(what: &'static str, conditions: &'static [Condition]) -> Case {
    Case { what, conditions }
}

/// What the filter does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel carries it out, with its own checks.
    Allow,
    /// It returns the error.
    Refuse(Errno),
    /// It is carried out when one of the cases holds, else it returns the error.
    AllowOnly(&'static [Case], Errno),
    /// It returns the error when one of the cases holds, else it is carried out.
    RefuseOnly(&'static [Case], Errno),
}

/// One system call of x86-64.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Its number.
    pub number: u32,
    /// Its name, as the kernel's `syscall_64.tbl` spells it.
    pub name: &'static str,
    /// What the filter does.
    pub verdict: Verdict,
    /// Why.
    pub reason: &'static str,
}

/// Rows that belong together.
#[derive(Debug, Clone, Copy)]
pub struct Topic {
    /// The heading.
    pub title: &'static str,
    /// The rows.
    pub rows: &'static [Row],
}

/// A row that allows the call.
pub const fn allow(number: u32, name: &'static str, reason: &'static str) -> Row {
    Row { number, name, verdict: Verdict::Allow, reason }
}

/// A row that refuses the call with `EPERM`.
pub const fn eperm(number: u32, name: &'static str, reason: &'static str) -> Row {
    Row { number, name, verdict: Verdict::Refuse(Errno::Perm), reason }
}

/// A row that refuses the call with `ENOSYS`. The default does the same; the row gives the reason.
pub const fn enosys(number: u32, name: &'static str, reason: &'static str) -> Row {
    Row { number, name, verdict: Verdict::Refuse(Errno::Nosys), reason }
}

/// A row that allows the call in some cases only.
pub const fn only(
    number: u32,
    name: &'static str,
    cases: &'static [Case],
    otherwise: Errno,
    reason: &'static str,
) -> Row {
    Row { number, name, verdict: Verdict::AllowOnly(cases, otherwise), reason }
}

/// A row that refuses the call in some cases only.
pub const fn except(
    number: u32,
    name: &'static str,
    cases: &'static [Case],
    errno: Errno,
    reason: &'static str,
) -> Row {
    Row { number, name, verdict: Verdict::RefuseOnly(cases, errno), reason }
}
