//! Archives what each origin's robots.txt was and from when on it applied: `robots.jsonl`.

use std::collections::HashSet;

use data_encoding::BASE64;

use crate::sink::line::Line;
use crate::sink::page::{Page, RobotsInForce, RobotsMeaning};
use crate::wire::proxy::Route;
use crate::wire::robots::LENGTH_MAX;
use crate::wire::warc::Digest;

/// Which files are in earlier lines.
#[derive(Debug, Default)]
pub(super) struct RobotsArchive {
    /// Digests of files that this run has written.
    written: HashSet<Digest>,
}

/// Files that are known to be written: about 3 MB. Beyond it all are written again.
const KNOWN_MAX: usize = 1 << 16;

/// Bytes of a file that are archived: one more than count, so that a reader sees that it is longer.
const ARCHIVED_MAX: usize = LENGTH_MAX + 1;

impl RobotsArchive {
    /// Appends the line of what the page of a robots.txt put into force, with its line end.
    pub fn write(&mut self, page: &Page, robots: &RobotsInForce, out: &mut Vec<u8>) {
        let mut line = Line { out };
        let wall = |at| page.wall_at_start.at(at);
        line.out.push(b'{');
        line.first("at").wall(wall(robots.from));
        line.key("until").wall(wall(robots.until));
        line.key("origin").text(&robots.origin);
        line.key("id").number(page.id);
        line.key("url").text(&page.url);
        let status = page.status.map(u64::from);
        line.key("status").or_null(status, Line::number);
        if let Some(route) = &page.route {
            line.key("proxied")
                .boolean(matches!(route, Route::Proxy(_)));
        }
        line.key("meaning").word(robots.meaning.as_str());
        let has_file = robots.meaning == RobotsMeaning::Rules;
        let file = &page.body[..page.body.len().min(ARCHIVED_MAX)];
        let digest = has_file.then(|| Digest::new(file));
        line.key("digest").or_null(digest, Line::digest);
        let length = has_file.then_some(page.body.len() as u64);
        line.key("bytes").or_null(length, Line::number);
        if let Some(digest) = digest {
            if self.written.len() == KNOWN_MAX {
                self.written.clear();
            }
            if self.written.insert(digest) {
                match str::from_utf8(file) {
                    Ok(text) => line.key("body").text(text),
                    Err(_) => line.key("body_b64").text(&BASE64.encode(file)),
                }
            }
        }
        line.out.extend_from_slice(b"}\n");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::sink::page::samples;

    fn archived(archive: &mut RobotsArchive, body: &[u8], meaning: RobotsMeaning) -> Value {
        let mut page = samples::reply(7, "HTTP/1.1 200 OK\r\n\r\n", body);
        page.url = "http://a.test/robots.txt".to_owned();
        let robots = RobotsInForce {
            meaning,
            ..samples::robots()
        };
        let mut line = Vec::new();
        archive.write(&page, &robots, &mut line);
        assert!(line.ends_with(b"}\n"));
        serde_json::from_slice(&line).expect("a line of JSON")
    }

    #[test]
    fn a_line_has_the_file_and_the_time_for_which_it_is_in_force() {
        let mut archive = RobotsArchive::default();
        let line = archived(&mut archive, b"User-agent: *\n", RobotsMeaning::Rules);
        assert_eq!(
            line,
            serde_json::json!({
                "at": "2026-11-21T00:00:08.000000000Z", "until": "2026-11-22T00:00:08.000000000Z",
                "origin": "http://a.test", "id": 7, "url": "http://a.test/robots.txt", "status": 200,
                "meaning": "rules", "digest": Digest::new(b"User-agent: *\n").to_string(), "bytes": 14,
                "body": "User-agent: *\n",
            })
        );
    }

    #[test]
    fn equal_files_are_archived_once_and_others_as_they_are() {
        let mut archive = RobotsArchive::default();
        let first = archived(&mut archive, b"a", RobotsMeaning::Rules);
        let second = archived(&mut archive, b"a", RobotsMeaning::Rules);
        assert_eq!(first["body"], "a");
        assert_eq!(
            (second.get("body"), &second["digest"]),
            (None, &first["digest"])
        );
        let binary = archived(&mut archive, b"\xff\0", RobotsMeaning::Rules);
        assert_eq!(
            (&binary["body_b64"], binary.get("body")),
            (&"/wA=".into(), None)
        );
        let none = archived(&mut archive, b"not found", RobotsMeaning::Absent);
        assert_eq!((&none["digest"], none.get("body")), (&Value::Null, None));
    }

    #[test]
    fn of_a_long_file_one_byte_more_than_counts_is_archived() {
        let mut archive = RobotsArchive::default();
        let line = archived(
            &mut archive,
            &vec![b'x'; LENGTH_MAX * 2],
            RobotsMeaning::Rules,
        );
        assert_eq!(line["body"].as_str().map(str::len), Some(LENGTH_MAX + 1));
        assert_eq!(line["bytes"], LENGTH_MAX * 2);
    }
}
