//! Scopes made from every form, the built-in maps, and later answers.

use crate::base::scopes::{SCOPES_MAX, add_scope};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::thread;

use proptest::prelude::*;

use super::super::settings::MapKind;
use super::*;

fn url(text: &str) -> CrawlUrl {
    CrawlUrl::parse(text).expect("a URL")
}

fn check(map: &dyn ScopeMap, text: &str, expected: &[&str]) {
    let url = url(text);
    let mut query = ScopeQuery::about(&url);
    map.scopes(&mut query);
    let scopes = query.into_scopes();
    assert!(scopes.is_ordered());
    assert_eq!(scopes.names().collect::<Vec<_>>(), expected, "{text}");
}

#[test]
fn f22_each_host_is_its_own_scope() {
    check(
        &ByHost,
        "http://books.toscrape.com/x",
        &["books.toscrape.com"],
    );
    check(&ByHost, "https://TOSCRAPE.com:443/", &["toscrape.com"]);
    check(&ByHost, "http://u:p@a.test:8080/", &["a.test:8080"]);
    check(&ByHost, "http://[::1]:81/", &["[::1]:81"]);
}

#[test]
fn f22_all_hosts_of_a_domain_share_a_scope_and_private_suffixes_divide() {
    let check = |text, expected| check(&ByDomain, text, &[expected]);
    check("https://books.toscrape.com", "toscrape.com");
    check("https://toscrape.com:8443", "toscrape.com");
    check("http://a.b.bbc.co.uk/", "bbc.co.uk");
    check("http://alice.github.io/", "alice.github.io");
    check("http://www.bob.github.io/", "bob.github.io");
    // A host without a registrable domain is mapped to itself, with its port.
    check("http://127.0.0.1:8080/", "127.0.0.1:8080");
    check("http://[::1]/", "[::1]");
    check("http://localhost:8000/", "localhost:8000");
    check("http://co.uk:81/", "co.uk:81");
    check("http://github.io/", "github.io");
}

#[test]
fn f23_the_hierarchy_contains_each_level_from_domain_to_host() {
    let check = |text, expected: &[&str]| check(&ByHierarchy, text, expected);
    check("http://toscrape.com/", &["toscrape.com"]);
    check(
        "http://books.toscrape.com/",
        &["toscrape.com", "books.toscrape.com"],
    );
    check(
        "http://a.b.bbc.co.uk:81/",
        &["bbc.co.uk", "b.bbc.co.uk", "a.b.bbc.co.uk"],
    );
    check(
        "http://a.b.c.d.test/",
        &["d.test", "c.d.test", "b.c.d.test", "a.b.c.d.test"],
    );
    check("http://10.0.0.1:81/", &["10.0.0.1:81"]);
    check("http://localhost/", &["localhost"]);
    check("http://com/", &["com"]);
}

#[test]
fn f23_a_host_with_too_many_labels_keeps_its_most_general_scopes() {
    let url = url(&format!("http://{}example.com/", "x.".repeat(100)));
    let mut query = ScopeQuery::about(&url);
    ByHierarchy.scopes(&mut query);
    let scopes = query.into_scopes();
    assert_eq!(scopes.len(), SCOPES_MAX);
    assert_eq!(scopes.names().next(), Some("example.com"));
    assert!(scopes.is_cut());
}

#[test]
fn f24_each_endpoint_is_a_scope_whatever_its_query() {
    let check = |text, expected| check(&ByEndpoint, text, &[expected]);
    check(
        "https://api.toscrape.com/fast-endpoint?page=2",
        "api.toscrape.com/fast-endpoint",
    );
    check("http://api.toscrape.com:81/a/b", "api.toscrape.com:81/a/b");
    check("http://api.toscrape.com", "api.toscrape.com/");
}

#[test]
fn f25_a_scraping_api_is_also_throttled_under_its_target() {
    struct Api;
    impl ScopeMap for Api {
        fn scopes(&self, query: &mut ScopeQuery<'_>) {
            ByHost.scopes(query);
            let target = query.url().query_value("url");
            if let Some(Ok(target)) = target.map(|target| CrawlUrl::parse(&target)) {
                query.add(target.scope_key());
            }
        }
    }
    let check = |query: &str, more: &[&str]| {
        let expected = [&["api.test"], more].concat();
        check(&Api, &format!("http://api.test/?{query}"), &expected);
    };
    check("url=https://t1.test/x?y=z", &["t1.test"]);
    check("key=1&url=http%3A%2F%2FT2.test%3A81%2F", &["t2.test:81"]);
    check("url=http://t1.test&url=http://t2.test", &["t1.test"]);
    check("", &[]);
    check("url=", &[]);
    check("url=garbage", &[]);
    check("url=%FF%00", &[]);
    check("urls=http://t1.test/", &[]);
}

#[test]
fn f29_a_map_can_request_the_address_scope() {
    check(&ByAddress, "http://a.test/", &[]);
    let wants = |kinds: &[MapKind]| MapKind::map_of(kinds).wants_address();
    assert!(wants(&[MapKind::Ip]));
    assert!(wants(&[MapKind::Host, MapKind::Ip]));
    assert!(!wants(&[MapKind::Host, MapKind::Domain]));
}

#[test]
fn f29_combined_maps_keep_their_order_and_add_each_scope_once() {
    let map = |kinds: &[MapKind]| MapKind::map_of(kinds);
    check(
        &*map(&[MapKind::Domain, MapKind::Hierarchy, MapKind::Endpoint]),
        "http://a.b.example.com/x",
        &[
            "example.com",
            "b.example.com",
            "a.b.example.com",
            "a.b.example.com/x",
        ],
    );
    check(&*map(&[]), "http://a.test:81/", &["a.test:81"]);
}

#[test]
fn f29_maps_are_selected_by_name() {
    for kind in MapKind::ALL {
        assert_eq!(kind.as_str().parse(), Ok(kind));
    }
    let error = "hots".parse::<MapKind>().expect_err("there is none");
    assert_eq!(
        error.to_string(),
        "unknown scope map \"hots\"; known: host, domain, hierarchy, endpoint, ip"
    );
}

#[test]
fn f67_a_map_can_read_the_request() {
    let url = url("http://a.test/x");
    let meta = RawValue::from_string("7".to_owned()).expect("JSON");
    let headers = [("X-Site".to_owned(), "b.test".to_owned())];
    let mut defer = || unreachable!("it answers at once");
    let facts = Facts {
        method: "POST",
        headers: &headers,
        meta: Some(&meta),
    };
    let mut query = ScopeQuery::new(&url, facts, &mut defer);
    assert_eq!(query.url().path(), "/x");
    assert_eq!(query.method(), "POST");
    assert_eq!(query.header("x-site"), Some("b.test"));
    assert_eq!(query.header("Host"), None);
    assert_eq!(query.meta(), Some("7"));
    query.add("a");
    query.add_cost("b", 2.0);
    query.add_all(["c", "a"]);
    query.unordered();
    let expected = add_scope("a", add_scope(("b", 2.0), "c")).unordered();
    assert_eq!(query.into_scopes(), expected);
}

#[test]
fn f67_a_later_answer_may_come_from_another_thread_and_is_delivered_once() {
    let answers = Arc::new(Mutex::new(Vec::new()));
    let later = || {
        let answers = Arc::clone(&answers);
        DeferredScopes::new(move |scopes| {
            answers
                .lock()
                .expect("the lock is not poisoned")
                .push(scopes)
        })
    };
    let (answered, dropped) = (later(), later());
    thread::spawn(move || answered.answer(["a", "b"]))
        .join()
        .expect("it answers");
    thread::spawn(move || drop(dropped))
        .join()
        .expect("it does not answer");
    let expected = vec![Some(["a", "b"].into()), None];
    assert_eq!(*answers.lock().expect("the lock is not poisoned"), expected);
}

#[test]
fn f67_a_later_answer_without_support_for_it_is_mapped_by_host() {
    struct Slow;
    impl ScopeMap for Slow {
        fn scopes(&self, query: &mut ScopeQuery<'_>) {
            query.add("all");
            query.later().answer("too late");
        }
    }
    check(&Slow, "http://a.test/", &["all", "a.test"]);
}

#[test]
fn f69_scopes_can_be_made_from_every_form() {
    let check = |scopes: Scopes, expected: &[(&str, Option<f64>)], ordered| {
        let found: Vec<_> = scopes
            .entries()
            .iter()
            .map(|entry| (entry.name.as_str(), entry.cost))
            .collect();
        assert_eq!(found, expected);
        assert_eq!(scopes.is_ordered(), ordered);
    };
    check(().into(), &[], true);
    check(None::<&str>.into(), &[], true);
    check("".into(), &[], true);
    check("a".into(), &[("a", None)], true);
    check(Some("a").into(), &[("a", None)], true);
    check("a".to_owned().into(), &[("a", None)], true);
    check(("a", 2.0).into(), &[("a", Some(2.0))], true);
    check(["b", "a", "b"].into(), &[("b", None), ("a", None)], true);
    check(vec!["b", ""].into(), &[("b", None)], true);
    check([("b", 1.0)].into(), &[("b", Some(1.0))], true);
    let set = BTreeSet::from(["b", "a"]);
    check(set.into(), &[("a", None), ("b", None)], false);
    let map = BTreeMap::from([("b", 1.0), ("a", 0.0)]);
    check(map.into(), &[("a", Some(0.0)), ("b", Some(1.0))], false);
}

#[test]
fn f69_omitted_scopes_are_flagged_in_every_combination() {
    let many = |count: usize| Scopes::from_iter((0..count).map(|number| number.to_string()));
    assert!(!many(SCOPES_MAX).is_cut());
    assert!(many(SCOPES_MAX + 1).is_cut());
    assert!(add_scope((), many(SCOPES_MAX + 1)).is_cut());
    assert!(!add_scope("0", many(SCOPES_MAX)).is_cut());
    assert!(add_scope("one more", many(SCOPES_MAX)).is_cut());
}

#[test]
fn f69_the_larger_of_two_costs_is_kept() {
    let check = |first: Option<f64>, second: Option<f64>, expected: Option<f64>| {
        let of = |cost| ScopeEntry {
            name: "a".to_owned(),
            cost,
        };
        let both = add_scope(of(first), of(second));
        let cost = both.entries()[0].cost;
        assert_eq!(cost.map(f64::to_bits), expected.map(f64::to_bits));
    };
    check(None, Some(0.5), Some(0.5));
    check(Some(0.5), None, Some(0.5));
    check(Some(1.0), Some(2.0), Some(2.0));
    check(Some(2.0), Some(1.0), Some(2.0));
    // An invalid cost will count as more than any quota, and a valid one does not replace it.
    check(Some(f64::NAN), Some(1.0), Some(f64::NAN));
    check(Some(1.0), Some(f64::NAN), Some(f64::NAN));
    check(Some(1.0), Some(-1.0), Some(-1.0));
    check(Some(-1.0), Some(1.0), Some(-1.0));
}

fn any_scopes() -> impl Strategy<Value = Scopes> {
    let name = "[a-e]{0,2}";
    prop_oneof![
        Just(Scopes::from(())),
        name.prop_map(Scopes::from),
        prop::collection::vec(name, 0..20).prop_map(Scopes::from),
        prop::collection::btree_set(name, 0..20).prop_map(Scopes::from),
        prop::collection::btree_map(name, 0.0..9.0_f64, 0..20).prop_map(Scopes::from),
        prop::collection::vec((name, 0.0..9.0_f64), 0..20).prop_map(Scopes::from),
    ]
}

proptest! {
    #[test]
    fn f69_adding_scopes_loses_none_and_keeps_the_order(
        first in any_scopes(),
        second in any_scopes(),
    ) {
        let (before, more) = (first.clone(), second.clone());
        let both = add_scope(&first, &second);
        prop_assert_eq!((&first, &second), (&before, &more));
        prop_assert_eq!(both.is_ordered(), first.is_ordered() && second.is_ordered());
        let names: Vec<_> = both.names().collect();
        let unique: BTreeSet<_> = names.iter().collect();
        prop_assert_eq!(unique.len(), names.len());
        prop_assert!(names.len() <= SCOPES_MAX && !names.contains(&""));
        // The first set keeps its positions.
        prop_assert!(names.starts_with(&first.names().collect::<Vec<_>>()));
        let all: BTreeSet<_> = first.names().chain(second.names()).collect();
        prop_assert_eq!(names.len(), all.len().min(SCOPES_MAX));
        prop_assert!(both.is_cut() == (all.len() > SCOPES_MAX || first.is_cut() || second.is_cut()));
        // Adding it again changes nothing.
        let again = add_scope(&both, &second);
        prop_assert_eq!(again.entries(), both.entries());
        for entry in both.entries() {
            let cost_in = |scopes: &Scopes| {
                let entries = scopes.entries();
                entries.iter().find(|own| own.name == entry.name).and_then(|own| own.cost)
            };
            let (one, other) = (cost_in(&first), cost_in(&second));
            let larger = one.into_iter().chain(other).reduce(f64::max);
            prop_assert_eq!(entry.cost, larger);
        }
    }
}
