//! Text for people: tables, and JSON without its punctuation.

use super::error::{CliError, While, is_broken_pipe};
use super::terminal::printable;
use serde_json::Value;
use std::fmt::Write as _;
use std::io::{self, Write};

/// A table with a head. Columns are as wide as they need to be.
#[must_use]
pub fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|&name| name.to_owned()).collect();
    let rows: Vec<Vec<String>> = std::iter::once(&head)
        .chain(rows)
        .map(|row| row.iter().map(|cell| printable(cell)).collect())
        .collect();
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max()
    };
    let widths: Vec<usize> = (0..head.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        let cells: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// A JSON value as indented lines, `name: value`.
#[must_use]
pub fn outline(value: &Value) -> String {
    let mut text = String::new();
    outline_into(&mut text, value, 0);
    text
}

fn outline_into(text: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match line(member) {
                    Some(line) => writeln!(text, "{indent}{}: {line}", printable(name)),
                    None => writeln!(text, "{indent}{}:", printable(name)),
                }
                .unwrap_or_default();
                if line(member).is_none() {
                    outline_into(text, member, depth + 1);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                match line(item) {
                    Some(line) => writeln!(text, "{indent}- {line}").unwrap_or_default(),
                    None => {
                        let mut nested = String::new();
                        outline_into(&mut nested, item, depth + 1);
                        nested.replace_range(depth * 2..depth * 2 + 1, "-");
                        text.push_str(&nested);
                    }
                }
            }
        }
        scalar => writeln!(text, "{indent}{}", cell(scalar)).unwrap_or_default(),
    }
}

/// The value on one line, where it fits one.
fn line(value: &Value) -> Option<String> {
    match value {
        Value::Object(members) if members.is_empty() => Some("none".to_owned()),
        Value::Object(_) => None,
        Value::Array(items) => {
            let simple = items.iter().all(|item| !item.is_array() && !item.is_object());
            let line = items.iter().map(cell).collect::<Vec<_>>().join(" ");
            match (items.is_empty(), simple && line.chars().count() <= 100) {
                (true, _) => Some("none".to_owned()),
                (_, true) => Some(line),
                _ => None,
            }
        }
        scalar => Some(cell(scalar)),
    }
}

/// A value without structure, for a table.
#[must_use]
pub fn cell(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "-".to_owned(),
        Value::String(text) => printable(text),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}

/// Prints to standard output; that nobody reads it is no failure.
///
/// # Errors
/// When it cannot be written for any other reason.
pub fn print(text: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if is_broken_pipe(&error) => Ok(()),
        other => other.while_doing(|| "standard output cannot be written"),
    }
}

/// Prints JSON as a person can read it and a program too.
///
/// # Errors
/// As for [`print`].
pub fn print_json(value: &Value) -> Result<(), CliError> {
    print(&format!("{value:#}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn columns_are_as_wide_as_they_need_to_be() {
        let rows = [
            vec!["a".to_owned(), "long name".to_owned()],
            vec!["bcd\u{1b}".to_owned(), "é".to_owned()],
        ];
        assert_eq!(table(&["ID", "NAME"], &rows), "ID    NAME\na     long name\nbcd\u{fffd}  é\n");
        assert_eq!(table(&["ID"], &[]), "ID\n");
    }

    #[test]
    fn an_outline_shows_every_value() {
        let value = json!({"a": 1, "b": {"c": [1, 2], "d": []}, "e": [{"f": null, "g": true}, {"f": "x"}], "h": {}});
        assert_eq!(
            outline(&value),
            "a: 1\nb:\n  c: 1 2\n  d: none\ne:\n  - f: -\n    g: yes\n  - f: x\nh: none\n"
        );
    }
}
