//! Where each value of the configuration comes from: its default, `config.toml`, a variable of the
//! environment, or an option of the command line; the last of these that says something counts.

use super::Config;
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use toml::{Table, Value};

/// Variables that name a key of a section begin so: `HANGAR_BUILD__TIMEOUT_S` is
/// `build.timeout_s`.
const PREFIX: &str = "HANGAR_";
const SEPARATOR: &str = "__";

/// Where a value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody said anything.
    Default,
    /// `config.toml`.
    File,
    /// The variable of this name.
    Variable(String),
    /// `--set`.
    Option,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File => f.write_str("config.toml"),
            Self::Variable(name) => f.write_str(name),
            Self::Option => f.write_str("--set"),
        }
    }
}

/// The configuration, and where it comes from.
#[derive(Debug, Clone)]
pub struct Resolved {
    /// What counts.
    pub config: Config,
    /// Each key that has a value, such as `build.timeout_s`.
    pub values: BTreeMap<String, (Value, Origin)>,
}

/// Puts the configuration together.
///
/// # Errors
/// One sentence that names the source and the key when something in it is not valid.
pub fn resolve(
    directory: &Path,
    variables: impl IntoIterator<Item = (String, String)>,
    options: &[String],
) -> Result<Resolved, String> {
    let mut values = BTreeMap::new();
    let defaults = Table::try_from(Config::default()).map_err(|error| error.to_string())?;
    add(&mut values, "", defaults, &Origin::Default);
    if let Some(file) = read(directory)? {
        check(&file).map_err(|why| format!("config.toml is not valid: {why}"))?;
        add(&mut values, "", file, &Origin::File);
    }
    for (name, value) in variables {
        let Some(key) = key_of(&name) else { continue };
        take(&mut values, &key, &value, Origin::Variable(name.clone()))
            .map_err(|why| format!("the variable {name} is not valid: {why}"))?;
    }
    for option in options {
        let (key, value) = option
            .split_once('=')
            .ok_or_else(|| format!("--set {option} is not of the form KEY=VALUE"))?;
        take(&mut values, key, value, Origin::Option)
            .map_err(|why| format!("--set {option} is not valid: {why}"))?;
    }
    let config = together(&values)?;
    config.build.check()?;
    config.tasks.check()?;
    config.server.check()?;
    Ok(Resolved { config, values })
}

fn read(directory: &Path) -> Result<Option<Table>, String> {
    match std::fs::read_to_string(directory.join("config.toml")) {
        Ok(text) => match text.parse() {
            Ok(table) => Ok(Some(table)),
            Err(error) => Err(format!("config.toml is not valid: {error}")),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("config.toml cannot be read: {error}")),
    }
}

fn check(table: &Table) -> Result<Config, String> {
    table.clone().try_into().map_err(|error: toml::de::Error| error.to_string())
}

/// Adds every value of a table under its whole key.
fn add(values: &mut BTreeMap<String, (Value, Origin)>, above: &str, table: Table, origin: &Origin) {
    for (name, value) in table {
        let key = if above.is_empty() { name } else { format!("{above}.{name}") };
        match value {
            Value::Table(below) => add(values, &key, below, origin),
            value => {
                values.insert(key, (value, origin.clone()));
            }
        }
    }
}

/// The key a variable names, when it names one.
fn key_of(variable: &str) -> Option<String> {
    let name = variable.strip_prefix(PREFIX)?;
    name.contains(SEPARATOR).then(|| name.replace(SEPARATOR, ".").to_ascii_lowercase())
}

/// Takes a value that was written as text: as TOML where it is that, or else as a string.
fn take(
    values: &mut BTreeMap<String, (Value, Origin)>,
    key: &str,
    text: &str,
    origin: Origin,
) -> Result<(), String> {
    let read = format!("value = {text}").parse::<Table>().ok();
    let read = read.filter(|table| table.len() == 1).and_then(|mut table| table.remove("value"));
    let written = Value::String(text.to_owned());
    let candidates = [read.unwrap_or_else(|| written.clone()), written];
    let mut why = String::new();
    for value in candidates {
        match check(&nested(key, value.clone())) {
            Ok(_) => {
                values.insert(key.to_owned(), (value, origin));
                return Ok(());
            }
            Err(error) => why = error,
        }
    }
    Err(why.trim().replace('\n', " "))
}

/// A table with one value under a key such as `build.limits.pids_max`.
fn nested(key: &str, value: Value) -> Table {
    let (first, value) = match key.split_once('.') {
        Some((first, rest)) => (first, Value::Table(nested(rest, value))),
        None => (key, value),
    };
    Table::from_iter([(first.to_owned(), value)])
}

fn together(values: &BTreeMap<String, (Value, Origin)>) -> Result<Config, String> {
    let mut whole = Table::new();
    for (key, (value, _)) in values {
        let mut table = &mut whole;
        let mut names = key.split('.').peekable();
        while let Some(name) = names.next() {
            if names.peek().is_none() {
                table.insert(name.to_owned(), value.clone());
                break;
            }
            let below = table.entry(name).or_insert_with(|| Value::Table(Table::new()));
            table = below.as_table_mut().ok_or_else(|| format!("{key} is below a value"))?;
        }
    }
    check(&whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(
        file: &str,
        variables: &[(&str, &str)],
        options: &[&str],
    ) -> Result<Resolved, String> {
        let dir = tempfile::tempdir().unwrap();
        if !file.is_empty() {
            std::fs::write(dir.path().join("config.toml"), file).unwrap();
        }
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let options: Vec<String> = options.iter().map(|&option| option.to_owned()).collect();
        resolve(dir.path(), variables.iter().map(owned), &options)
    }

    #[test]
    fn the_last_that_says_something_counts_and_is_named() {
        let file = "[build]\ntimeout_s = 5\nparallel_max = 2\nnpm_registry = \"https://a/\"";
        let variables = [("HANGAR_BUILD__TIMEOUT_S", "6"), ("HANGAR_LOG", "x"), ("PATH", "y")];
        let all = resolved(file, &variables, &["session.limits.pids_max=7"]).unwrap();
        assert_eq!(all.config.build.timeout_s, 6);
        assert_eq!(all.config.build.parallel_max, 2);
        assert_eq!(all.config.session.limits.pids_max, Some(7));
        let origin = |key: &str| all.values[key].1.to_string();
        assert_eq!(origin("build.timeout_s"), "HANGAR_BUILD__TIMEOUT_S");
        assert_eq!(origin("build.parallel_max"), "config.toml");
        assert_eq!(origin("session.limits.pids_max"), "--set");
        assert_eq!(origin("uploads.entries_max"), "default");
    }

    #[test]
    fn text_is_a_string_where_one_is_wanted() {
        for text in ["https://x/", "\"https://x/\""] {
            let variables = [("HANGAR_BUILD__PIP_INDEX_URL", text)];
            let all = resolved("", &variables, &["build.go_proxy=17"]).unwrap();
            assert_eq!(all.config.build.pip_index_url.as_deref(), Some("https://x/"));
            assert_eq!(all.config.build.go_proxy.as_deref(), Some("17"));
        }
    }

    #[test]
    fn what_is_not_valid_is_named_with_its_source() {
        for (file, variable, option, told) in [
            ("[build]\ntimeout = 5", "", "", "config.toml is not valid"),
            ("", "HANGAR_BUILD__TIMEOUT", "", "the variable HANGAR_BUILD__TIMEOUT is not valid"),
            (
                "",
                "HANGAR_BUILD__TIMEOUT_S",
                "",
                "the variable HANGAR_BUILD__TIMEOUT_S is not valid",
            ),
            ("", "", "build.timeout_s", "is not of the form KEY=VALUE"),
            ("", "", "build.timeout_s=soon", "--set build.timeout_s=soon is not valid"),
            ("", "", "build=1", "--set build=1 is not valid"),
            ("", "", "build.timeout_s.x=1", "--set build.timeout_s.x=1 is not valid"),
        ] {
            let variables: &[(&str, &str)] =
                if variable.is_empty() { &[] } else { &[(variable, "soon")] };
            let options: &[&str] = if option.is_empty() { &[] } else { &[option] };
            let error = resolved(file, variables, options).unwrap_err();
            assert!(error.contains(told) && !error.contains('\n') | !file.is_empty(), "{error}");
        }
    }
}
