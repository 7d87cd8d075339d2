//! Which agents a robots.txt permits what.

use super::*;
use proptest::prelude::*;

/// Asserts whether `agent` may fetch each path.
fn check(file: &str, agent: &str, paths: &[(&str, bool)]) {
    let rules = Robots::parse(file.as_bytes()).agent(agent);
    for (path, expected) in paths {
        let verdict = rules.allowed(path);
        assert_eq!(verdict.allowed, *expected, "{agent} on {path}: {verdict:?}");
    }
}

fn delay(file: &str, agent: &str) -> Option<f64> {
    let rules = Robots::parse(file.as_bytes()).agent(agent);
    rules.crawl_delay().map(|delay| delay.as_secs_f64())
}

#[test]
fn an_empty_file_forbids_nothing() {
    check("", "foobot", &[("/", true), ("", true)]);
    assert!(!Rules::disallow_all().allowed("/x").allowed);
    assert!(!Rules::disallow_all().allowed("").allowed);
    assert!(Rules::allow_all().allowed("/x").allowed);
}

#[test]
fn an_agent_gets_all_its_groups_or_else_those_for_all_agents() {
    let file = "User-agent: foobot\nDisallow: /a\n\nUser-agent: *\nDisallow: /b\n\n\
                User-agent: FooBot/2.0\nDisallow: /c\n";
    check(
        file,
        "foobot",
        &[("/a", false), ("/b", true), ("/c", false)],
    );
    check(file, "foobot/1.2 (x)", &[("/a", false), ("/b", true)]);
    check(file, "foobot-news", &[("/a", true), ("/b", false)]);
    check(file, "*", &[("/a", true), ("/b", false)]);
    check(file, "", &[("/a", true), ("/b", false)]);
}

#[test]
fn a_group_without_rules_is_a_group() {
    check(
        "User-agent: *\nDisallow: /\n\nUser-agent: foobot\n",
        "foobot",
        &[("/", true)],
    );
}

#[test]
fn several_agents_on_one_line_all_count() {
    check("User-agent: one, two\nDisallow: /", "two", &[("/", false)]);
    check("User-agent: one two\nDisallow: /", "two", &[("/", true)]);
}

#[test]
fn only_a_rule_ends_a_stack_of_agents() {
    let file = "User-agent: a\n\nCrawl-delay: 3\nWhat: ever\nSitemap: http://x/\n\n\
                User-agent: b\nDisallow: /x\nUser-agent: c\nDisallow: /y";
    check(file, "a", &[("/x", false), ("/y", true)]);
    check(file, "b", &[("/x", false), ("/y", true)]);
    check(file, "c", &[("/x", true), ("/y", false)]);
    check(
        "User-agent: a\nDisallow:\nUser-agent: b\nDisallow: /",
        "a",
        &[("/", true)],
    );
}

#[test]
fn the_longest_rule_decides_and_allow_wins_a_tie() {
    let file =
        "User-agent: *\nDisallow: /a\nAllow: /a/b\nDisallow: /a/b/c\nAllow: /x\nDisallow: /x";
    check(
        file,
        "f",
        &[
            ("/a", false),
            ("/a/b", true),
            ("/a/b/cd", false),
            ("/x", true),
        ],
    );
    let rules = Robots::parse(file.as_bytes()).agent("f");
    let rule = Rule {
        allow: false,
        pattern: "/a/b/c",
        line: 4,
    };
    assert_eq!(rules.allowed("/a/b/c").rule, Some(rule));
    assert_eq!(rules.allowed("/z").rule, None);
}

#[test]
fn robots_txt_itself_is_always_allowed() {
    let file = "User-agent: *\nDisallow: /";
    check(
        file,
        "f",
        &[
            ("/robots.txt", true),
            ("/robots.txt?x", true),
            ("/robots.txts", false),
        ],
    );
}

#[test]
fn rules_before_any_agent_are_ignored() {
    check(
        "Disallow: /\nCrawl-delay: 3\nUser-agent: *\nDisallow: /x",
        "f",
        &[("/", true), ("/x", false)],
    );
}

#[test]
fn allowing_an_index_page_allows_its_folder() {
    let file = "User-agent: *\nAllow: /x/index.html\nDisallow: /";
    check(
        file,
        "f",
        &[("/x/", true), ("/x/y", false), ("/x/index.html", true)],
    );
}

#[test]
fn misspellings_and_missing_colons_are_accepted() {
    check(
        "useragent: *\nDissallow: /a\nDISALLOW /b\ndisallow : /c\ndisallow /d /e",
        "f",
        &[("/a", false), ("/b", false), ("/c", false), ("/d", true)],
    );
}

#[test]
fn line_ends_marks_and_comments_do_not_matter() {
    for end in ["\n", "\r", "\r\n"] {
        let file =
            format!("\u{feff}User-agent: * # all{end}{end}Disallow: /a # x{end}Disallow: /b");
        check(&file, "f", &[("/a", false), ("/b", false), ("/c", true)]);
        let rules = Robots::parse(file.as_bytes()).agent("f");
        assert_eq!(
            rules.allowed("/b").rule.map(|rule| rule.line),
            Some(4),
            "{end:?}"
        );
    }
}

#[test]
fn a_utf_16_file_with_a_byte_order_mark_is_read() {
    let text = "\u{feff}User-agent: *\nDisallow: /ü";
    for unit in [u16::to_le_bytes, u16::to_be_bytes] {
        let file: Vec<u8> = text.encode_utf16().flat_map(unit).collect();
        assert!(!Robots::parse(&file).agent("f").allowed("/%C3%BC").allowed);
    }
}

#[test]
fn an_invalid_character_of_utf_16_is_replaced_and_half_of_one_is_omitted() {
    let mut units: Vec<u16> = "\u{feff}User-agent: *\nDisallow: /a"
        .encode_utf16()
        .collect();
    units.extend([0xD800, u16::from(b'b')]);
    let mut file: Vec<u8> = units.into_iter().flat_map(u16::to_le_bytes).collect();
    file.push(b'c');
    let rules = Robots::parse(&file).agent("f");
    assert!(!rules.allowed("/a%EF%BF%BDb").allowed);
    assert!(rules.allowed("/a").allowed);
}

#[test]
fn a_file_is_read_up_to_the_last_complete_line_within_its_limit() {
    let mut file = "User-agent: *\nDisallow: /a\n".to_owned();
    while file.len() < LENGTH_MAX - 100 {
        file += "# filling, filling, filling\n";
    }
    file += "Disallow: /b\nAllow: /";
    file += &"x".repeat(200);
    file += "\nDisallow: /c\n";
    let rules = Robots::parse(file.as_bytes()).agent("f");
    assert!(!rules.allowed("/a").allowed);
    assert!(!rules.allowed("/b").allowed);
    assert!(rules.allowed("/c").allowed);
    assert_eq!(
        rules.iter().count(),
        2,
        "the line that was cut is not a rule"
    );
}

#[test]
fn a_crawl_delay_may_have_a_fraction_and_invalid_ones_are_ignored() {
    let of = |value: &str| delay(&format!("User-agent: *\nCrawl-delay: {value}"), "f");
    assert_eq!(of("10"), Some(10.0));
    assert_eq!(of("0.25"), Some(0.25));
    assert_eq!(of(".5 # half"), Some(0.5));
    assert_eq!(of("5s"), Some(5.0));
    assert_eq!(of("0"), Some(0.0));
    assert_eq!(of("-1"), None);
    assert_eq!(of("soon"), None);
    assert_eq!(of("1.2.3"), None);
    assert_eq!(of(""), None);
    assert_eq!(of(&"9".repeat(400)), Some(DELAY_MAX));
}

#[test]
fn a_crawl_delay_is_for_the_agents_stacked_above_it() {
    let file = "User-agent: *\nCrawl-delay: 3\n\nUser-agent: a\nUser-agent: b\n\
                Crawl-delay: 1\n\nUser-agent: c\nDisallow: /x\nCrawl-delay: 7\n";
    assert_eq!(delay(file, "f"), Some(3.0));
    assert_eq!(delay(file, "a"), Some(1.0));
    assert_eq!(delay(file, "b"), Some(1.0));
    assert_eq!(delay(file, "c"), Some(7.0));
}

#[test]
fn the_longest_of_several_crawl_delays_applies() {
    let file = "User-agent: a\nCrawl-delay: 2\nCrawl-delay: 1\nDisallow: /x\n\
                User-agent: a\nCrawl-delay: 4\nDisallow: /y\nUser-agent: *\nCrawl-delay: 9";
    assert_eq!(delay(file, "a"), Some(4.0));
}

#[test]
fn sitemaps_belong_to_no_group() {
    let file =
        "Sitemap: http://a.test/1.xml\nUser-agent: x\nsitemap:http://a.test/2.xml # two\nSitemap:";
    assert_eq!(
        Robots::parse(file.as_bytes()).sitemaps(),
        ["http://a.test/1.xml", "http://a.test/2.xml"]
    );
}

#[test]
fn a_sitemap_that_is_not_utf_8_is_percent_encoded() {
    let file = b"Sitemap: http://a.test/caf\xe9.xml\nSitemap: /caf\xc3\xa9.xml\n";
    let robots = Robots::parse(file);
    assert_eq!(robots.sitemaps(), ["http://a.test/caf%E9.xml", "/café.xml"]);
}

#[test]
fn a_file_that_exceeds_the_step_budget_forbids() {
    let mut file = "User-agent: *\n".to_owned();
    while file.len() < LENGTH_MAX {
        file += "Disallow: /*a*a*a*a*a*a*a*ab\n";
    }
    let rules = Robots::parse(file.as_bytes()).agent("f");
    let path = format!("/{}", "a".repeat(8000));
    let verdict = rules.allowed(&path);
    assert_eq!((verdict.allowed, verdict.rule), (false, None));
}

#[test]
fn every_cut_of_a_file_is_a_file() {
    let file =
        "\u{feff}User-agent: a, *\r\nAllow: /ü*$\rCrawl-delay: 1.5\n\nDisallow /%e3%8\nSitemap: x"
            .as_bytes();
    for cut in 0..=file.len() {
        let robots = Robots::parse(&file[..cut]);
        robots.agent("a").allowed("/ü%e3%8");
        let mut wide = vec![0xFF, 0xFE];
        wide.extend(&file[..cut]);
        Robots::parse(&wide);
    }
}

proptest! {
    #[test]
    fn no_file_and_no_path_make_the_parser_panic(file: Vec<u8>, agent: String, path: String) {
        Robots::parse(&file).agent(&agent).allowed(&path);
    }

    #[test]
    fn a_file_of_plausible_lines_never_panics(
        file in "((User-agent|Allow|Disallow|Crawl-delay|Sitemap)?:? ?[ab*$/%2A.,]{0,12}[\r\n]{0,2}){0,12}",
        path in "/[ab*$/%2A.]{0,20}",
    ) {
        let rules = Robots::parse(file.as_bytes()).agent("a");
        let verdict = rules.allowed(&path);
        prop_assert_eq!(verdict.allowed, verdict.rule.is_none_or(|rule| rule.allow));
    }
}

/// Number of minimal steps that a file takes; asserts the same rules as parsing it at once.
fn steps(file: &[u8], agent: &str) -> usize {
    let mut reading = RobotsReading::new(file, agent);
    let mut steps = 1;
    while !reading.step(&mut Units::new(1)) {
        steps += 1;
    }
    let (rules, sitemaps) = reading.into_rules();
    let whole = Robots::parse(file);
    assert_eq!(
        (&rules, &sitemaps[..]),
        (&whole.agent(agent), whole.sitemaps())
    );
    steps
}

#[test]
fn a_file_parsed_in_steps_for_one_agent_gives_the_same_rules() {
    let file = "\u{feff}User-agent: a, b\r\nAllow: /x\rCrawl-delay: 1.5\n\nUser-agent: c\nDisallow: /\n\
                User-agent: *\nDisallow: /y\nSitemap: x\nUser-agent: d\nUser-agent: a\nCrawl-delay: 3\n\
                User-agent: e\nCrawl-delay: 9\nAllow: /index.html\nUser-agent: f";
    let wide: Vec<u8> = file.encode_utf16().flat_map(u16::to_le_bytes).collect();
    for agent in ["a", "b", "c", "d", "e", "f", "*", "other"] {
        assert_eq!(steps(file.as_bytes(), agent), 16);
        steps(&wide, agent);
    }
}

/// Units for a file of this many lines, and the maximum for one line.
fn units_of(file: &str) -> (u64, u64) {
    let mut reading = RobotsReading::new(file.as_bytes(), "argiope");
    let mut units = Units::new(1 << 40);
    assert!(reading.step(&mut units));
    let lines = file.lines().count() as u64;
    let spent = (1 << 40) - units.left();
    (spent, spent / lines)
}

#[test]
fn the_cost_of_a_line_does_not_grow_with_the_number_of_agents() {
    let file = |count: usize| {
        let mut file = "User-agent: argiope\n".repeat(count);
        file += &"Crawl-delay: 3\n".repeat(count);
        file
    };
    let (few, many) = (file(10), file(10_000));
    let robots = Robots::parse(many.as_bytes());
    assert_eq!(robots.groups.len(), 1);
    assert_eq!(
        robots.groups[0].delays.len(),
        1,
        "a stack has one delay, however many agents"
    );
    assert_eq!(
        robots.agent("argiope").crawl_delay(),
        Some(Duration::from_secs(3))
    );
    assert_eq!(units_of(&few).1, units_of(&many).1);
}

#[test]
fn the_rules_of_one_agent_use_no_more_memory_than_the_file() {
    let mut file = "User-agent: *\n".to_owned();
    while file.len() < LENGTH_MAX - 10 {
        file += "Allow: /\n";
    }
    let mut reading = RobotsReading::new(file.as_bytes(), "argiope");
    assert!(reading.step(&mut Units::unbounded()));
    let (rules, _) = reading.into_rules();
    assert!(rules.heap_size() < file.len() / 2, "{}", rules.heap_size());
    let others = file.replace('*', "others");
    let mut reading = RobotsReading::new(others.as_bytes(), "argiope");
    assert!(reading.step(&mut Units::unbounded()));
    assert_eq!(
        reading.into_rules().0.heap_size(),
        0,
        "others' groups are not kept"
    );
}
