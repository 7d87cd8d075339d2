//! The families of metrics of a crawl.

use crate::admin::exposition::{Family, Kind};

macro_rules! families {
    ($($constant:ident: $kind:ident $name:literal $labels:tt, $help:literal;)*) => {
        $(pub const $constant: Family = Family {
            name: $name,
            kind: Kind::$kind,
            labels: &$labels,
            help: $help,
        };)*

        /// All of them, in the order in which they are written.
        pub const FAMILIES: &[Family] = &[$($constant),*];
    };
}

families! {
    BUILD: Info "argiope_build" ["version", "io"],
        "Version of Argiope, and back end of its sockets and files.";
    START: Gauge "argiope_start_time_seconds" [],
        "Start of this run of the crawl, since the Unix epoch.";
    PAUSED: Gauge "argiope_paused" [],
        "1 while the crawl is paused by command.";

    ATTEMPTS: Counter "argiope_attempts" ["kind"],
        "Attempts that ended, final or not.";
    PAGES: Counter "argiope_pages" [],
        "Final results of pages with a status.";
    PAGES_FAILED: Counter "argiope_pages_failed" [],
        "Final results of pages with an error, without those filtered, cancelled or disallowed by robots.txt.";
    RESPONSES: Counter "argiope_responses" ["status"],
        "Attempts by status of their final head.";
    ERRORS: Counter "argiope_errors" ["kind", "code"],
        "Attempts that ended with an error.";
    ERRORS_FINAL: Counter "argiope_errors_final" [],
        "Final results with an error that counts towards CLOSESPIDER_ERRORCOUNT, of every kind.";
    BYTES_WIRE: Counter "argiope_wire_bytes" [],
        "Bytes of replies as received, above TLS.";
    BYTES_BODY: Counter "argiope_body_bytes" [],
        "Bytes of bodies after the content codings.";
    CONNECTIONS: Counter "argiope_connections_opened" [],
        "Connections opened.";
    REUSED: Counter "argiope_exchanges_reused" [],
        "Exchanges on a connection that had carried one before.";

    SEEDS: Counter "argiope_seeds" [],
        "Seeds read.";
    SEEDS_BAD: Counter "argiope_seeds_bad" [],
        "Seeds lines that were invalid.";
    LINKS: Counter "argiope_links" [],
        "Links found in pages.";
    FILTERED: Counter "argiope_filtered" ["reason"],
        "Links rejected.";
    SEEN: Gauge "argiope_seen_urls" [],
        "URLs in the duplicate filter.";
    QUEUED: Gauge "argiope_queued_requests" [],
        "Requests that wait.";
    IN_FLIGHT: Gauge "argiope_in_flight_requests" [],
        "Requests released and not ended.";
    BUFFERED: Gauge "argiope_buffered_bytes" [],
        "Bytes of replies in memory until their exchanges end.";

    OUTAGES: Counter "argiope_outages" [],
        "Outages of the local network or the name servers.";
    OUTAGE_TIME: Counter "argiope_outage_seconds" [],
        "Time of these outages.";
    OUTAGE_OPEN: Gauge "argiope_outage_open" [],
        "1 during an outage.";
    DISK_PAUSES: Counter "argiope_disk_pauses" [],
        "Pauses for lack of room on the disk.";
    DISK_PAUSED: Counter "argiope_disk_paused_seconds" [],
        "Time of these pauses.";
    DISK_FULL: Gauge "argiope_disk_full" [],
        "1 during such a pause.";
    HOSTS_HELD: Gauge "argiope_hosts_held" [],
        "Hosts that do not answer and are held.";
    HOSTS_HELD_NEXT: Gauge "argiope_hosts_held_next_seconds" [],
        "Time until the first of these hosts may be tried again; absent without one.";

    STAMPS: Counter "argiope_latency_stamps" ["accuracy"],
        "Latencies by how precisely they are known.";
    SERVER_LATENCY: Histogram "argiope_server_latency_seconds" [],
        "Time from the departure of a request to the last byte of the final head.";
    LATENCY: Histogram "argiope_latency_seconds" [],
        "The same time, plus the TLS handshake where the exchange made one.";
    PHASES: Histogram "argiope_phase_seconds" ["phase"],
        "Time of each phase of an attempt.";
    LATENESS: Histogram "argiope_lateness_seconds" [],
        "Time from when a request could depart to its departure.";
    TURNS: Histogram "argiope_turn_seconds" [],
        "Time of a turn of the loop, from the end of one wait to the beginning of the next.";
    TURN_PROCESSOR_MAX: Gauge "argiope_turn_processor_max_seconds" [],
        "Most processor time of a turn; 0 if unknown.";

    SCOPES: Gauge "argiope_scopes" [],
        "Scopes with state.";
    SCOPES_WAITING: Gauge "argiope_scopes_waiting" [],
        "Scopes with a waiting lane.";
    SCOPES_OMITTED: Gauge "argiope_scopes_omitted" [],
        "Scopes that have no series of their own here.";
    WAITED: Counter "argiope_waited_seconds" ["cause"],
        "Time that scopes waited, all scopes together.";
    DECISIONS: Counter "argiope_decisions" ["event"],
        "Decisions about paces, all scopes together.";
    SCOPE_SENT: Counter "argiope_scope_sent" ["scope"],
        "Requests sent under the scope.";
    SCOPE_REFUSED: Counter "argiope_scope_refused" ["scope"],
        "Answers that refused the scope.";
    SCOPE_WAITED: Counter "argiope_scope_waited_seconds" ["scope"],
        "Time that the scope waited, whatever the cause.";
    SCOPE_DELAY: Gauge "argiope_scope_delay_seconds" ["scope"],
        "Delay between the scope's departures that its pace asks for.";
    SCOPE_CONCURRENCY: Gauge "argiope_scope_concurrency" ["scope"],
        "Most requests on the wire at once that the scope's pace allows.";
    SCOPE_LATENCY: Gauge "argiope_scope_latency_seconds" ["scope"],
        "Estimate of the scope's median latency; absent while unknown.";
}
