//! The faults that people met in the wild, by id: each kind has a test, and each test a
//! legitimate twin, because hardening that breaks honest input is a fault too.
//!
//! A table names its area and gives every id two functions. A listed id without a row, a row
//! without an id, and a row out of order do not compile.

/// Archives that are imported.
pub const ARCHIVES: &[&str] = &[
    "A01", "A02", "A03", "A04", "A05", "A06", "A07", "A08", "A09", "A10", "A11", "A12", "A13",
    "A14", "A15", "A16", "A17", "A18", "A19", "A20", "A21", "A22", "A23", "A24", "A25", "A26",
];

/// Builds of projects.
pub const BUILDS: &[&str] = &[
    "C01", "C02", "C03", "C04", "C05", "C06", "C07", "C08", "C09", "C10", "C11", "C12", "C13",
    "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21", "C22", "C23", "C24", "C25",
];

/// The API.
pub const API: &[&str] =
    &["E01", "E02", "E03", "E04", "E05", "E06", "E07", "E08", "E09", "E10", "E11"];

/// The table of an area: `faults!(AREA; a01 "A01" fault_function twin_function, …)`. Every row
/// becomes two tests, `a01::fault` and `a01::twin`.
#[macro_export]
macro_rules! faults {
    ($area:expr; $($name:ident $id:literal $fault:path, $twin:path;)*) => {
        const _: () = $crate::faults::check($area, &[$($id),*]);
        $(
            mod $name {
                use super::*;

                #[test]
                fn fault() {
                    $fault();
                }

                #[test]
                fn twin() {
                    $twin();
                }
            }
        )*
    };
}

/// Compares a table with the list of its area while the test is compiled.
///
/// # Panics
/// When they differ.
pub const fn check(listed: &[&str], rows: &[&str]) {
    let mut at = 0;
    while at < listed.len() {
        assert!(at < rows.len(), "a listed fault has no row");
        assert!(is_same(listed[at], rows[at]), "a row is missing, unlisted or out of order");
        at += 1;
    }
    assert!(rows.len() == listed.len(), "a row is about no listed fault");
}

const fn is_same(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut at = 0;
    while at < one.len() && at < other.len() && one[at] == other[at] {
        at += 1;
    }
    at == one.len() && at == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    mod table {
        fn fine() {}

        crate::faults!(&["X1", "X2"]; x1 "X1" fine, fine; x2 "X2" fine, fine;);
    }

    #[test]
    #[should_panic(expected = "a listed fault has no row")]
    fn an_id_without_a_row_is_noticed() {
        check(ARCHIVES, &ARCHIVES[..25]);
    }

    #[test]
    #[should_panic(expected = "missing, unlisted or out of order")]
    fn a_row_of_another_name_is_noticed() {
        check(&["A01"], &["A02"]);
    }

    #[test]
    #[should_panic(expected = "a row is about no listed fault")]
    fn a_row_without_an_id_is_noticed() {
        check(&["A01"], &["A01", "A02"]);
    }
}
