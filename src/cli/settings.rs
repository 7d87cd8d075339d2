//! `argiope settings`, and the loading of every command's config. The only file that imports toml.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::num::NonZero;
use std::ops::Range;
use std::path::{Path, PathBuf};

use argiope::settings::{Setting, SettingSource, all as settings};
use argiope::{Config, ConfigError};
use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Usage;
use super::args::sources::{Configured, Given, HOSTS, Settings, Strength};
use super::flag_values::{self, FlagNames};

/// The finished configuration from preset, file, `-s` and flags.
pub fn load(configured: &Configured, flags: &[Given]) -> anyhow::Result<Config> {
    load_over(&NO_VALUES, configured, flags)
}

/// The same over the settings of the crawl that is continued, if one is. Everything given overrides them.
pub fn load_resumed(
    stored: Option<&Map<String, Value>>,
    configured: &Configured,
    flags: &[Given],
) -> anyhow::Result<Config> {
    let mut config = Config::default();
    for (name, value) in stored.into_iter().flatten() {
        let source = SettingSource::Preset("the resumed crawl".to_owned());
        config.set(name, value, source)?;
    }
    let config = gather_over(config, &NO_VALUES, configured, flags)?;
    flag_values::check_extracted(&config, stored.is_some())?;
    finished(config)
}

/// As [`load`], with a command's own defaults. File, `-s` and flags override them; a preset does
/// not, because it is not specific to a command.
pub fn load_over(
    values: &CommandValues,
    configured: &Configured,
    flags: &[Given],
) -> anyhow::Result<Config> {
    finished(gather(values, configured, flags)?)
}

/// The settings of a crawl by the command: unless `WORKERS` is set it has a helper thread for each core
/// but one, at most four.
pub fn with_workers(mut config: Config) -> anyhow::Result<Config> {
    if *config.source("WORKERS") == SettingSource::Default {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        let workers = (cores - 1).min(WORKERS_MAX);
        config.set("WORKERS", workers as u64, of_machine())?;
    }
    Ok(config)
}

/// The source of a value that suits the machine: a crawl that is resumed on another one has another.
pub fn of_machine() -> SettingSource {
    SettingSource::Preset("this machine".to_owned())
}

/// Most helper threads without a setting: the crawl's thread keeps no more busy.
const WORKERS_MAX: usize = 4;

fn finished(config: Config) -> anyhow::Result<Config> {
    let flags = FlagNames::of(&config);
    let named = |error: ConfigError| Usage(flags.put_into(&error.to_string()));
    let config = config.finish().map_err(named)?;
    if config.is_insecure() {
        let place = config.source("INSECURE");
        log::warn!(
            "certificates are not verified ({place}): anyone on the network path can forge replies"
        );
    }
    Ok(config)
}

/// A command's own defaults, as text.
pub struct CommandValues {
    pub command: &'static str,
    pub values: &'static [(&'static str, &'static str)],
}

const NO_VALUES: CommandValues = CommandValues {
    command: "",
    values: &[],
};

fn gather(
    usual: &CommandValues,
    configured: &Configured,
    flags: &[Given],
) -> anyhow::Result<Config> {
    let config = gather_over(Config::default(), usual, configured, flags)?;
    flag_values::check_extracted(&config, false)?;
    Ok(config)
}

fn gather_over(
    mut config: Config,
    usual: &CommandValues,
    configured: &Configured,
    flags: &[Given],
) -> anyhow::Result<Config> {
    if let Some(preset) = &configured.preset {
        config.preset(preset)?;
    }
    for (name, value) in usual.values {
        let source = SettingSource::Preset(usual.command.to_owned());
        config.set(name, *value, source)?;
    }
    if let Some(path) = &configured.config {
        apply_file(&mut config, path)?;
    }
    for assignment in &configured.set {
        let (name, value) = flag_values::check_assignment(assignment)?;
        config.set(name.trim(), value, SettingSource::Option)?;
    }
    let is_set = |name: &str| {
        let setting = settings().iter().find(|setting| setting.name == name);
        let names = configured.set.iter();
        let mut names = names.filter_map(|set| set.split('=').next());
        setting.is_some_and(|setting| names.any(|name| setting.is_named(name.trim())))
    };
    for given in flags {
        flag_values::check(given.flag, &given.value)?;
        let is_overridden = match given.strength {
            Strength::All => false,
            Strength::Files => is_set(given.name),
            Strength::Defaults => *config.source(given.name) != SettingSource::Default,
        };
        if is_overridden {
            continue;
        }
        let source = SettingSource::Flag(given.flag.to_owned());
        match given.name {
            HOSTS if given.value.is_null() => drop_proxies(&mut config, source)?,
            HOSTS => add_hosts(&mut config, &given.value, source)?,
            name => config.set(name, given.value.clone(), source)?,
        }
    }
    Ok(config)
}

/// Adds settings of single hosts to those that are set. Of a host, the new ones replace those of the same names.
fn add_hosts(config: &mut Config, hosts: &Value, source: SettingSource) -> anyhow::Result<()> {
    // By normalised names, and each header as a line.
    let mut new = Config::default();
    new.set(HOSTS, hosts.clone(), source.clone())?;
    let mut all = hosts_of(config);
    for (name, entry) in hosts_of(&new) {
        let own = all.entry(name).or_insert_with(|| json!({}));
        for (key, value) in entry.as_object().into_iter().flatten() {
            if key == "headers" {
                add_headers(own, value);
            } else {
                own[key] = value.clone();
            }
            if key == "user" {
                drop_headers(own, |name| name.eq_ignore_ascii_case(AUTHORIZATION));
            }
        }
    }
    config.set(HOSTS, Value::from(all), source)?;
    Ok(())
}

/// Removes the proxies of single hosts, and the entries that have nothing else.
fn drop_proxies(config: &mut Config, source: SettingSource) -> anyhow::Result<()> {
    let mut hosts = hosts_of(config);
    if hosts.values().any(|own| own.get("proxy").is_some()) {
        hosts.retain(|_, own| {
            let own = own.as_object_mut();
            own.is_some_and(|own| own.remove("proxy").is_none() || !own.is_empty())
        });
        config.set(HOSTS, Value::from(hosts), source)?;
    }
    Ok(())
}

/// The entries of single hosts.
fn hosts_of(config: &Config) -> Map<String, Value> {
    match config.get(HOSTS).map(Value::from) {
        Some(Value::Object(hosts)) => hosts,
        _ => Map::new(),
    }
}

/// Adds header lines to the entry of a host.
fn add_headers(own: &mut Value, lines: &Value) {
    let lines = lines.as_array().into_iter().flatten();
    let lines: Vec<&str> = lines.filter_map(Value::as_str).collect();
    let is_new = |name: &str| {
        let mut names = lines.iter().map(|line| name_of(line));
        names.any(|new| new.eq_ignore_ascii_case(name))
    };
    drop_headers(own, is_new);
    if is_new(AUTHORIZATION)
        && let Some(own) = own.as_object_mut()
    {
        own.remove("user");
    }
    let before = own.get("headers").and_then(Value::as_array);
    let before = before.cloned().unwrap_or_default();
    let all = before
        .into_iter()
        .chain(lines.iter().map(|line| Value::from(*line)));
    own["headers"] = all.collect();
}

/// Removes header lines by their names.
fn drop_headers(own: &mut Value, is_dropped: impl Fn(&str) -> bool) {
    if let Some(lines) = own.get_mut("headers").and_then(Value::as_array_mut) {
        lines.retain(|line| !line.as_str().is_some_and(|line| is_dropped(name_of(line))));
    }
}

/// The name of a header line.
fn name_of(line: &str) -> &str {
    line.split(':').next().unwrap_or(line)
}

const AUTHORIZATION: &str = "Authorization";

/// The entries of exclusion lists: one per line, with `#` comments.
pub fn read_exclusions(paths: &[PathBuf]) -> anyhow::Result<Vec<String>> {
    let mut entries = Vec::new();
    for path in paths {
        let text = read(path).map_err(|Usage(what)| match path.exists() {
            true => Usage(format!("--exclude {what} with a host in each line")),
            false => Usage(format!(
                "--exclude {what}; for a host itself write -s EXCLUDE={}, for URLs --deny REGEX",
                path.display()
            )),
        })?;
        for (index, line) in text.lines().enumerate() {
            let entry = line.split('#').next().unwrap_or_default().trim();
            if entry.is_empty() {
                continue;
            }
            // Checked one by one, so that an error contains the line.
            let place = format!("--exclude {}:{}", path.display(), index + 1);
            Config::default().set("EXCLUDE", json!([entry]), SettingSource::Flag(place))?;
            entries.push(entry.to_owned());
        }
    }
    Ok(entries)
}

/// `argiope settings`.
pub fn run(args: &Settings) -> anyhow::Result<i32> {
    let config = gather(&NO_VALUES, args.configured(), &args.given())?;
    // Prints the values before those that depend on the machine are set: the file may be for another one.
    config.clone().finish()?;
    let chosen = chosen(&config, &args.names, args.changed)?;
    let text = match (args.json, args.toml) {
        (true, _) => as_json(&config, &chosen),
        (_, true) => as_toml(&config, &chosen)?,
        _ if !args.names.is_empty() => in_full(&config, &chosen),
        _ => as_table(&config, &chosen),
    };
    print(&text)?;
    Ok(0)
}

/// The settings of these names, or all; with `changed` those that are not at their defaults.
fn chosen(
    config: &Config,
    names: &[String],
    changed: bool,
) -> anyhow::Result<Vec<&'static Setting>> {
    for name in names {
        if !settings().iter().any(|setting| setting.is_named(name)) {
            // Its error names the nearest setting.
            Config::default().set(name, Value::Null, SettingSource::Program)?;
        }
    }
    let is_chosen = |setting: &&Setting| {
        let is_named = names.iter().any(|name| setting.is_named(name));
        // By its value: flags set some settings to their defaults, too.
        let is_changed = || config.get(setting.name) != Some(setting.default());
        (names.is_empty() || is_named) && (!changed || is_changed())
    };
    Ok(settings().iter().filter(is_chosen).collect())
}

/// Writes all of `text` to stdout.
pub fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    stdout.flush()
}

fn read(path: &Path) -> Result<String, Usage> {
    fs::read_to_string(path).map_err(|error| {
        Usage(format!(
            "{}: cannot be read: {error}; give a readable text file",
            path.display()
        ))
    })
}

fn apply_file(config: &mut Config, path: &Path) -> anyhow::Result<()> {
    let text = read(path).map_err(|Usage(what)| Usage(format!("--config {what}")))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let at = |span: Range<usize>| SettingSource::File {
        path: path.to_owned(),
        line: line_of(text, span.start),
    };
    let file = DeTable::parse(text).map_err(|error| {
        let place = at(error.span().unwrap_or_default());
        Usage(format!("{place}: {}; correct the TOML", error.message()))
    })?;
    let mut lines: BTreeMap<String, SettingSource> = BTreeMap::new();
    // In the order of the file, so that the first error is the one nearest its top.
    let mut entries: Vec<_> = file.get_ref().iter().collect();
    entries.sort_by_key(|(name, _)| name.span().start);
    for (name, value) in entries {
        let source = at(name.span());
        let setting = settings().iter().find(|s| s.is_named(name.get_ref()));
        let key = setting.map_or(name.get_ref().as_ref(), |setting| setting.name);
        if let Some(first) = lines.insert(key.to_owned(), source.clone()) {
            return Err(Usage(format!(
                "{source}: {}: already set at {first}; remove one of them",
                name.get_ref()
            ))
            .into());
        }
        config
            .set(name.get_ref(), json_of(value.get_ref()), source)
            .map_err(|mut error: ConfigError| {
                // The invalid value may be lines below the setting's name.
                if let Some(span) = span_of(value, &error.problem.entry) {
                    error.source_of = at(span);
                }
                error
            })?;
    }
    Ok(())
}

/// Position of the entry with this path of keys.
fn span_of(value: &Spanned<DeValue<'_>>, entry: &[String]) -> Option<Range<usize>> {
    let (key, rest) = entry.split_first()?;
    let table = value.get_ref().as_table()?;
    let (name, inner) = table.iter().find(|(name, _)| name.get_ref() == key)?;
    span_of(inner, rest).or_else(|| Some(name.span()))
}

fn line_of(text: &str, at: usize) -> usize {
    let before = text.as_bytes().iter().take(at);
    before.filter(|byte| **byte == b'\n').count() + 1
}

/// The value in JSON. Types that JSON lacks become text, which the table of settings validates.
fn json_of(value: &DeValue<'_>) -> Value {
    match value {
        DeValue::String(text) => text.as_ref().into(),
        DeValue::Integer(digits) => i64::from_str_radix(digits.as_str(), digits.radix())
            .map_or_else(|_| digits.as_str().into(), Value::from),
        DeValue::Float(digits) => {
            let number = digits.as_str().parse::<f64>().ok();
            match number.and_then(serde_json::Number::from_f64) {
                Some(number) => Value::Number(number),
                None => digits.as_str().into(),
            }
        }
        DeValue::Boolean(flag) => (*flag).into(),
        DeValue::Datetime(moment) => moment.to_string().into(),
        DeValue::Array(items) => items.iter().map(|item| json_of(item.get_ref())).collect(),
        DeValue::Table(table) => table
            .iter()
            .map(|(name, value)| (name.get_ref().to_string(), json_of(value.get_ref())))
            .collect::<Map<_, _>>()
            .into(),
    }
}

/// A JSON array, one setting per line.
fn as_json(config: &Config, chosen: &[&Setting]) -> String {
    let rows: Vec<String> = chosen
        .iter()
        .map(|setting| {
            json!({
                "name": setting.name,
                "kind": setting.kind,
                "default": Value::from(setting.default()),
                "value": shown(config, setting),
                "source": config.source(setting.name).to_string(),
                "scope_key": setting.scope_key,
                "meaning": setting.meaning,
            })
            .to_string()
        })
        .collect();
    format!("[\n{}\n]\n", rows.join(",\n"))
}

/// A table as text. Long values are cut; `--json` has them in full.
fn as_table(config: &Config, chosen: &[&Setting]) -> String {
    let mut rows = vec![[
        "NAME".to_owned(),
        "DEFAULT".to_owned(),
        "VALUE".to_owned(),
        "FROM".to_owned(),
        "SCOPE KEY".to_owned(),
        "MEANING".to_owned(),
    ]];
    for setting in chosen {
        let cell = |value: &Value| cut(&plain(setting, value));
        rows.push([
            setting.name.to_owned(),
            cell(&Value::from(setting.default())),
            cell(&shown(config, setting)),
            config.source(setting.name).to_string(),
            setting.scope_key.unwrap_or("-").to_owned(),
            setting.meaning.to_owned(),
        ]);
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: Vec<usize> = (0..5).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(text, "{cell:width$}  ");
        }
        let _ = writeln!(text, "{}", row[5]);
    }
    text
}

/// Some settings, with all that is known of them.
fn in_full(config: &Config, chosen: &[&Setting]) -> String {
    let mut text = String::new();
    for setting in chosen {
        let source = config.source(setting.name);
        let value = plain(setting, &shown(config, setting));
        let default = plain(setting, &Value::from(setting.default()));
        let _ = writeln!(text, "{} = {value}", setting.name);
        let mut line = |name: &str, words: &str| {
            let _ = writeln!(text, "  {name:<12}{words}");
        };
        line("from", &source.to_string());
        line("default", &default);
        line("kind", setting.kind);
        if let Some(key) = setting.scope_key {
            line(
                "scope key",
                &format!("{key}, in an entry of THROTTLING_SCOPES"),
            );
        }
        line(
            "live",
            match setting.is_live {
                true => "yes: a running crawl applies a new value (argiope ctl DIR reload)",
                false => "no: another value needs another run",
            },
        );
        line("meaning", setting.meaning);
    }
    text
}

/// A value for display: without passwords.
fn shown(config: &Config, setting: &Setting) -> Value {
    config.shown(setting.name).map_or(Value::Null, Value::from)
}

/// A TOML file from which `--config` makes the same configuration, passwords included. Defaults are
/// commented out, so that derived settings stay derived.
fn as_toml(config: &Config, chosen: &[&Setting]) -> anyhow::Result<String> {
    let mut text = String::from(
        "# Settings of argiope. What is commented out is the default.\n\
         # Durations are seconds or text (\"500ms\", \"10s\", \"2h\"), sizes bytes or text (\"10MiB\").\n",
    );
    let assignments = assignments(config)?.into_iter();
    for (setting, assignment) in assignments.filter(|(it, _)| chosen.contains(it)) {
        let _ = writeln!(text, "\n# {} ({})", setting.meaning, setting.kind);
        let chosen = *config.source(setting.name) != SettingSource::Default;
        for line in assignment.lines() {
            let _ = writeln!(text, "{}{line}", if chosen { "" } else { "# " });
        }
    }
    Ok(text)
}

/// A TOML file with the settings that are no defaults, passwords included.
pub fn chosen_toml(config: &Config) -> anyhow::Result<String> {
    let is_chosen =
        |(setting, _): &(&Setting, String)| *config.source(setting.name) != SettingSource::Default;
    let chosen = assignments(config)?.into_iter().filter(is_chosen);
    Ok(chosen.map(|(_, assignment)| assignment).collect())
}

/// Each setting in TOML.
fn assignments(config: &Config) -> anyhow::Result<Vec<(&'static Setting, String)>> {
    // Tables come last: in TOML, the keys after a table's header belong to it.
    let (tables, plain): (Vec<&Setting>, Vec<&Setting>) = settings()
        .iter()
        .partition(|setting| Value::from(setting.default()).is_object());
    let assignment = |setting: &'static Setting| {
        let name = setting.name.to_ascii_lowercase();
        let text = match value_of(config, setting) {
            Value::Object(map) if Value::from(setting.default()).is_object() => {
                toml_table(&name, &map)?
            }
            value => format!("{name} = {}\n", toml_value(&friendly(setting, &value))?),
        };
        Ok((setting, text))
    };
    plain.into_iter().chain(tables).map(assignment).collect()
}

fn toml_table(name: &str, map: &Map<String, Value>) -> anyhow::Result<String> {
    let mut text = format!("[{name}]\n");
    for (key, entry) in map {
        let key = toml_value(&key.as_str().into())?;
        let _ = writeln!(text, "[{name}.{key}]");
        for (key, value) in entry.as_object().into_iter().flatten() {
            let _ = writeln!(text, "{key} = {}", toml_value(value)?);
        }
    }
    Ok(text)
}

fn toml_value(value: &Value) -> anyhow::Result<String> {
    Ok(match value {
        // Every setting that may be unset parses empty text as unset.
        Value::Null => "\"\"".to_owned(),
        // JSON strings are valid TOML, except that TOML requires DEL to be escaped.
        Value::String(_) => value.to_string().replace('\u{7f}', "\\u007f"),
        other => toml::Value::try_from(other)?.to_string(),
    })
}

fn value_of(config: &Config, setting: &Setting) -> Value {
    config.get(setting.name).map_or(Value::Null, Value::from)
}

/// A value in the syntax of the command line.
fn plain(setting: &Setting, value: &Value) -> String {
    match friendly(setting, value) {
        Value::Null => "-".to_owned(),
        Value::String(text) => text,
        Value::Array(items) if items.is_empty() => "-".to_owned(),
        Value::Array(items) if setting.kind.starts_with("list") => {
            let items: Vec<String> = items.iter().map(|item| plain(setting, item)).collect();
            items.join(",")
        }
        Value::Object(map) if map.is_empty() => "-".to_owned(),
        other => other.to_string(),
    }
}

/// Durations and sizes in the largest unit that is exact.
fn friendly(setting: &Setting, value: &Value) -> Value {
    const SPANS: &[(u128, &str)] = &[
        (3_600_000_000_000, "h"),
        (60_000_000_000, "m"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ];
    const SIZES: &[(u128, &str)] = &[(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let (amount, units) = match (setting.kind, value.as_f64()) {
        ("duration", Some(seconds)) => ((seconds * 1e9).round() as u128, SPANS),
        ("bytes", Some(_)) => (u128::from(value.as_u64().unwrap_or(0)), SIZES),
        _ => return value.clone(),
    };
    let unit = units.iter().find(|(unit, _)| amount % unit == 0);
    match unit {
        Some((unit, name)) if amount > 0 => format!("{}{name}", amount / unit).into(),
        _ => value.clone(),
    }
}

fn cut(text: &str) -> String {
    match text.chars().count() > CELL_MAX {
        true => text.chars().take(CELL_MAX - 1).collect::<String>() + "…",
        false => text.to_owned(),
    }
}

/// Maximum characters of a value in the table.
const CELL_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commands_own_values_override_a_preset_only() {
        let own = [&super::super::fetch::VALUES, &super::super::demo::VALUES];
        let flags = [Given {
            flag: "--host-down-after",
            name: "HOST_DOWN_AFTER",
            value: "8s".into(),
            strength: Strength::All,
        }];
        for own in own {
            let check = |set: &[&str], flags: &[Given], expected: &str| {
                let configured = Configured {
                    config: None,
                    preset: Some("broad".to_owned()),
                    set: set
                        .iter()
                        .map(|assignment| (*assignment).to_owned())
                        .collect(),
                };
                let config = gather(own, &configured, flags).expect("sound settings");
                assert_eq!(config.source("SCOPE_MAP").to_string(), "preset broad");
                let source = config.source("HOST_DOWN_AFTER").to_string();
                assert_eq!(source, expected, "{}", own.command);
            };
            check(&[], &[], &format!("preset {}", own.command));
            check(&["HOST_DOWN_AFTER=9s"], &[], "-s");
            check(&["HOST_DOWN_AFTER=9s"], &flags, "--host-down-after");
        }
    }
}
