use saphyr_parser::{Event, Parser, ScalarStyle};

use super::file::{Entry, join_key};

/// Nesting that no configuration needs.
const DEEPEST: usize = 32;

/// What is open at a point of the document.
enum Open {
    /// A mapping; `key` is the one whose value comes next.
    Mapping {
        path: String,
        key: Option<(String, usize)>,
    },
    /// A list under a key, joined by semicolons when it ends.
    Sequence {
        path: String,
        line: usize,
        items: Vec<String>,
    },
}

/// Reads YAML with nested or dotted keys into a flat list; a list becomes its elements between semicolons.
///
/// # Errors
/// The line, if known, and what is wrong.
pub(super) fn parse(text: &str) -> Result<Vec<Entry>, (Option<usize>, String)> {
    let mut entries = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    let mut documents = 0;
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|e| (Some(e.marker().line()), e.info().to_owned()))?;
        let line = span.start.line();
        let fail = |why: &str| Err((Some(line), why.to_owned()));
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    return fail("a configuration is one document");
                }
            }
            Event::Alias(_) => return fail("aliases are not supported"),
            Event::Scalar(value, style, _, _) => {
                let nothing = style == ScalarStyle::Plain && matches!(&*value, "" | "~" | "null");
                match open.last_mut() {
                    // An empty document is one empty scalar.
                    None if nothing => {}
                    None => return fail("a configuration is a mapping of options to values"),
                    Some(Open::Mapping { path, key }) => match key.take() {
                        None => *key = Some((value.into_owned(), line)),
                        Some((name, line)) => {
                            let text = if nothing {
                                String::new()
                            } else {
                                value.into_owned()
                            };
                            entries.push(Entry {
                                key: join_key(path, &name).map_err(|why| (Some(line), why))?,
                                text,
                                line: Some(line),
                            });
                        }
                    },
                    Some(Open::Sequence { items, .. }) => items.push(value.into_owned()),
                }
            }
            Event::SequenceStart(..) | Event::MappingStart(..) => {
                if open.len() >= DEEPEST {
                    return fail("the nesting is too deep");
                }
                let mapping = matches!(event, Event::MappingStart(..));
                let (path, line) = match open.last_mut() {
                    None if mapping => (String::new(), line),
                    None => return fail("a configuration is a mapping of options to values"),
                    Some(Open::Mapping { path, key }) => match key.take() {
                        Some((name, line)) => {
                            let path = join_key(path, &name).map_err(|why| (Some(line), why))?;
                            (path, line)
                        }
                        None => return fail("a key must be plain text"),
                    },
                    Some(Open::Sequence { .. }) => return fail("a list holds plain values only"),
                };
                open.push(if mapping {
                    Open::Mapping { path, key: None }
                } else {
                    Open::Sequence {
                        path,
                        line,
                        items: Vec::new(),
                    }
                });
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(Open::Sequence { path, line, items }) = open.pop() {
                    entries.push(Entry {
                        key: path,
                        text: items.join(";"),
                        line: Some(line),
                    });
                }
            }
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
    }
    Ok(entries)
}
