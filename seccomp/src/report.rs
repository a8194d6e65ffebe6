//! A profile as a document.

use crate::row::{Case, Row, Verdict};
use crate::{Profile, topics};
use std::fmt::Write;

/// The profile as Markdown: a heading and a table per topic.
pub fn markdown(profile: Profile) -> String {
    let mut text = format!(
        "# System calls of the profile `{}`\n\n\
         A number that is not listed returns `ENOSYS`. Another calling convention (32-bit, x32) \
         ends the process.\n",
        profile.name()
    );
    for topic in topics(profile) {
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\n## {}\n\n| number | call | what happens | why |\n|---:|---|---|---|\n",
            topic.title
        );
        for row in topic.rows {
            let _ = writeln!(
                text,
                "| {} | `{}` | {} | {} |",
                row.number,
                row.name,
                verdict(row),
                row.reason
            );
        }
    }
    text
}

fn verdict(row: &Row) -> String {
    match row.verdict {
        Verdict::Allow => "allowed".to_owned(),
        Verdict::Refuse(errno) => format!("`{}`", errno.name()),
        Verdict::AllowOnly(cases, errno) => {
            format!("allowed: {}; else `{}`", list(cases), errno.name())
        }
        Verdict::RefuseOnly(cases, errno) => {
            format!("`{}`: {}; else allowed", errno.name(), list(cases))
        }
    }
}

fn list(cases: &[Case]) -> String {
    cases.iter().map(|case| case.what).collect::<Vec<_>>().join(", ")
}
