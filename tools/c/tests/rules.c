/* Misuse of the API, and its errors. No server listens at the addresses used. */
#include <argiope.h>
#include <assert.h>
#include <pthread.h>
#include <string.h>

static void *submits(void *handle) {
    for (int number = 0; number < 100; number++)
        assert(argiope_handle_submit(handle, "http://127.0.0.1:9/", 1000 + number, NULL) ==
               ARGIOPE_STATUS_OK);
    argiope_handle_free(handle);
    return NULL;
}

int main(void) {
    uint64_t id = 0;

    /* Null arguments return an error, or do nothing. */
    assert(argiope_submit(NULL, "http://a.test/", 0, &id) == ARGIOPE_STATUS_REFUSED);
    assert(strstr(argiope_error(), "null"));
    assert(argiope_turn(NULL, 0) == ARGIOPE_STATUS_REFUSED);
    assert(argiope_fd(NULL) == -1 && !argiope_next(NULL) && !argiope_reason(NULL) && !argiope_handle(NULL));
    argiope_close(NULL);
    argiope_free(NULL);
    argiope_page_free(NULL);
    assert(argiope_view(NULL).id == 0 && !argiope_view(NULL).url.data);
    assert(!argiope_new_with_state(NULL, NULL) && strstr(argiope_error(), "null"));
    argiope_acknowledge(NULL, 1);
    assert(argiope_committed_epoch(NULL) == 0 && argiope_view(NULL).epoch == 0);
    argiope_handle_free(NULL);
    argiope_handle_pause(NULL, true);
    assert(argiope_handle_set_scope(NULL, "a.test", "{}") == ARGIOPE_STATUS_REFUSED);
    assert(argiope_handle_cancel_scope(NULL, "a.test") == ARGIOPE_STATUS_REFUSED);
    assert(!argiope_stats(NULL).data && !argiope_stats(NULL).length);

    /* A name without a value, and a value that is not UTF-8. */
    const char *odd[] = {"ALLOW_NET", NULL}, *strange[] = {"ALLOW_NET", "\xff", NULL};
    assert(!argiope_new(odd) && strstr(argiope_error(), "ALLOW_NET"));
    assert(!argiope_new(strange));

    const char *settings[] = {"ALLOW_NET", "loopback", "DOWNLOAD_DELAY", "0", "ROBOTSTXT_OBEY", "false",
                              "RETRY_TIMES", "0", NULL};
    ArgiopeCrawler *crawler = argiope_new(settings);
    assert(crawler && argiope_fd(crawler) >= 0);
    assert(argiope_submit(crawler, "no url", 0, &id) == ARGIOPE_STATUS_REFUSED);
    assert(argiope_submit(crawler, "# a comment", 0, &id) == ARGIOPE_STATUS_REFUSED);
    assert(argiope_submit(crawler, NULL, 0, &id) == ARGIOPE_STATUS_REFUSED);

    /* The page has the tag and meta of its request. */
    assert(argiope_submit(crawler, "{\"url\": \"http://127.0.0.1:9/\", \"meta\": {\"a\": 1}}", 7, &id) ==
           ARGIOPE_STATUS_OK);
    ArgiopePage *page = NULL;
    while (!(page = argiope_next(crawler)))
        assert(argiope_turn(crawler, -1) == ARGIOPE_STATUS_OK);
    ArgiopeView view = argiope_view(page);
    assert(view.root == id && view.tag == 7 && view.is_final && view.status == 0);
    assert(view.server_latency == -1 && view.body.length == 0 && !view.body.data);
    assert(!strncmp((const char *)view.meta.data, "{\"a\": 1}", view.meta.length));
    assert(!strncmp((const char *)view.error.data, "connect.refused", view.error.length));
    argiope_page_free(page);

    /* Every key of a seeds line; the tag of the object is used if the call passes 0. */
    assert(argiope_submit(crawler,
                          "{\"url\": \"http://127.0.0.1:9/\", \"dont_filter\": true, \"ignore_robots\": true,"
                          " \"dont_follow\": true, \"dont_merge_cookies\": true, \"timeout\": 9.5,"
                          " \"body_max\": 1, \"proxy\": \"direct\", \"tag\": 9}", 0, &id) == ARGIOPE_STATUS_OK);
    while (!(page = argiope_next(crawler)))
        assert(argiope_turn(crawler, -1) == ARGIOPE_STATUS_OK);
    view = argiope_view(page);
    assert(view.root == id && view.tag == 9 && view.status == 0 && view.error.length > 0);
    argiope_page_free(page);

    /* set_scope accepts an entry of THROTTLING_SCOPES, and refuses anything else. */
    ArgiopeHandle *steers = argiope_handle(crawler);
    assert(argiope_handle_set_scope(steers, "127.0.0.1:9", "{\"delay\": 3600}") == ARGIOPE_STATUS_OK);
    assert(argiope_handle_set_scope(steers, "127.0.0.1:9", "{\"delai\": 1}") == ARGIOPE_STATUS_REFUSED);
    assert(strstr(argiope_error(), "delai"));
    assert(argiope_handle_set_scope(steers, "127.0.0.1:9", "delay") == ARGIOPE_STATUS_REFUSED);
    assert(argiope_handle_set_scope(steers, "127.0.0.1:9", NULL) == ARGIOPE_STATUS_REFUSED);
    const char *urls[] = {"", "", "http://127.0.0.1:9/2", "http://127.0.0.1:9/3"};
    for (int number = 2; number < 4; number++)
        assert(argiope_handle_submit(steers, urls[number], number, &id) == ARGIOPE_STATUS_OK);
    while (!(page = argiope_next(crawler)))
        assert(argiope_turn(crawler, -1) == ARGIOPE_STATUS_OK);
    assert(argiope_view(page).tag == 2);
    argiope_page_free(page);
    /* The second request waits for an hour, or until it is cancelled. */
    assert(argiope_turn(crawler, 1000000) == ARGIOPE_STATUS_OK && !argiope_next(crawler));
    assert(argiope_handle_cancel_scope(steers, "127.0.0.1:9") == ARGIOPE_STATUS_OK);
    while (!(page = argiope_next(crawler)))
        assert(argiope_turn(crawler, -1) == ARGIOPE_STATUS_OK);
    view = argiope_view(page);
    assert(view.root == id && !strncmp((const char *)view.error.data, "cancelled.asked", view.error.length));
    argiope_page_free(page);
    assert(argiope_handle_set_scope(steers, "127.0.0.1:9", "{}") == ARGIOPE_STATUS_OK);
    argiope_handle_free(steers);
    ArgiopeBytes stats = argiope_stats(crawler);
    char copy[65536] = "";
    assert(stats.length < sizeof copy && memcpy(copy, stats.data, stats.length));
    assert(copy[0] == '{' && strstr(copy, "\"connect.refused\":3"));

    /* Another thread submits while this one waits; the crawl ends after that thread freed its handle.
     * Fewer than 1000 untaken pages do not pause it. */
    pthread_t thread;
    assert(!pthread_create(&thread, NULL, submits, argiope_handle(crawler)));
    ArgiopeHandle *late = argiope_handle(crawler);
    argiope_close(crawler);
    assert(argiope_submit(crawler, "http://127.0.0.1:9/", 0, NULL) == ARGIOPE_STATUS_OVER);
    assert(strstr(argiope_error(), "argiope_close") && !strstr(argiope_error(), "over"));
    assert(!argiope_reason(crawler));
    pthread_join(thread, NULL);
    argiope_handle_shutdown(late, 0);
    while (argiope_turn(crawler, -1) == ARGIOPE_STATUS_OK)
        ;
    assert(!strcmp(argiope_reason(crawler), "shutdown") && argiope_fd(crawler) >= 0);
    assert(argiope_turn(crawler, 0) == ARGIOPE_STATUS_OVER && !argiope_handle(crawler));
    assert(argiope_submit(crawler, "http://127.0.0.1:9/", 0, NULL) == ARGIOPE_STATUS_OVER);
    assert(strstr(argiope_error(), "over"));
    assert(argiope_handle_submit(late, "http://127.0.0.1:9/", 0, NULL) == ARGIOPE_STATUS_OVER);
    assert(argiope_handle_cancel(late, 1) == ARGIOPE_STATUS_OVER);

    /* argiope_free frees untaken pages; handles remain valid. */
    argiope_free(crawler);
    assert(argiope_handle_cancel(late, 1) == ARGIOPE_STATUS_OVER);
    argiope_handle_free(late);

    /* What is submitted through the crawler finds room; a handle says when there is none. */
    crawler = argiope_new(settings);
    argiope_set_ahead(crawler, 2);
    late = argiope_handle(crawler);
    for (int number = 0; number < 5000; number++)
        assert(argiope_submit(crawler, "http://127.0.0.1:9/", 0, NULL) == ARGIOPE_STATUS_OK);
    for (int number = 0; number < 2; number++)
        assert(argiope_handle_submit(late, "http://127.0.0.1:9/", 0, NULL) == ARGIOPE_STATUS_OK);
    assert(argiope_handle_submit(late, "http://127.0.0.1:9/", 0, NULL) == ARGIOPE_STATUS_FULL);
    assert(strstr(argiope_error(), "no room"));
    argiope_free(crawler);
    argiope_handle_free(late);

    /* A crawler freed with a request in flight. */
    crawler = argiope_new(settings);
    late = argiope_handle(crawler);
    assert(argiope_submit(crawler, "http://127.0.0.1:9/", 0, NULL) == ARGIOPE_STATUS_OK);
    argiope_free(crawler);
    argiope_handle_free(late);
    return 0;
}
