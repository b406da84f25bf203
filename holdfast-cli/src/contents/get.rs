use std::io::{BufWriter, Write};

use checkpoint_tools::{Entry, KeyQuery, entry_json};
use state_api::Value;

use super::args::GetArgs;
use super::dump::{has_gone, unwritten};
use super::opened::{interruptible, judged, open};
use super::steps::Steps;
use crate::date::time_text;
use crate::failure::{Exit, Failure};
use crate::inspect::{Table, io_runtime};
use crate::terminal;

/// Entries that are shown in a table; of a longer list or map the rest is counted.
const SHOWN: usize = 10_000;

/// Prints what a state holds of one key.
///
/// # Errors
/// When there is no such checkpoint or state, the text is no key of it, or it holds nothing of it.
pub(crate) fn get(args: &GetArgs) -> Result<(), Failure> {
    let io = io_runtime()?;
    let progress = Steps::beside_rows(true);
    interruptible(&io, &progress, async {
        let access = args.source.stores.access(io.handle())?;
        let source = open(&args.source, &access, &progress).await?;
        let state = source.state(&args.state)?;
        let mut query = KeyQuery::parse(&state, &args.key)?;
        if let Some(text) = &args.namespace {
            query = query.namespace(&state, text)?;
        }
        if let Some(text) = &args.map_key {
            query = query.map_key(&state, text)?;
        }
        let mut found = Found::default();
        let mut out = BufWriter::new(std::io::stdout().lock());
        let take = &mut |entry: Entry| {
            found.count += 1;
            if args.json {
                return writeln!(out, "{}", entry_json(&entry)).map_err(unwritten);
            }
            if found.entries.len() < SHOWN {
                found.entries.push(entry);
            }
            Ok(())
        };
        let looked_up = source.lookup(&state, &query, take).await;
        match looked_up.and_then(|()| out.flush().map_err(unwritten)) {
            Err(error) if has_gone(&error) => return Ok(()),
            done => judged(&source, done).await?,
        }
        drop(out);
        if found.count == 0 {
            let line = format!(
                "state {} of checkpoint {} has nothing of key {}",
                state.path(),
                source.metadata().checkpoint,
                query.key().to_json_string()
            );
            return Err(Failure::new(Exit::Nothing, line));
        }
        if args.json {
            return Ok(());
        }
        terminal::print(&found.text())
    })
}

#[derive(Default)]
struct Found {
    count: usize,
    entries: Vec<Entry>,
}

impl Found {
    fn text(self) -> String {
        let columns: [(&str, Column); 6] = [
            ("namespace", |e| shown(e.namespace.as_ref())),
            ("map key", |e| shown(e.map_key.as_ref())),
            ("index", |e| e.index.map(|i| i.to_string())),
            ("time", |e| e.time_ms.map(|ms| ms.to_string())),
            ("value", |e| shown(e.value.as_ref())),
            ("expires", |e| e.expires_ms.map(time_text)),
        ];
        // A column that no entry has is left out.
        let used: Vec<&(&str, Column)> = columns
            .iter()
            .filter(|(_, column)| self.entries.iter().any(|entry| column(entry).is_some()))
            .collect();
        let heads: Vec<&str> = used.iter().map(|(head, _)| *head).collect();
        let mut table = Table::new(&heads, &[]);
        for entry in &self.entries {
            table.row(
                used.iter()
                    .map(|(_, column)| column(entry).unwrap_or_default()),
            );
        }
        let mut out = table.render(0);
        if self.count > SHOWN {
            let more = (self.count - SHOWN) as u64;
            out.push_str(&format!(
                "and {} more (--json has them all)\n",
                terminal::grouped(more)
            ));
        }
        out
    }
}

/// Writes one column of an entry.
type Column = fn(&Entry) -> Option<String>;

fn shown(value: Option<&Value>) -> Option<String> {
    value.map(Value::to_json_string)
}
