/* A crawl in a poll loop: URLs from the command line, one output line per page.
 *
 *     cargo build --release && gcc examples/crawl.c -Iinclude -Ltarget/release -largiope_c -o crawl
 *
 * Settings come before the URLs, as NAME=VALUE. */
#include <argiope.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    const char *settings[64] = {0};
    int at = 1, words = 0;
    for (; at < argc && words < 62 && argv[at][strcspn(argv[at], "=:")] == '='; at++) {
        settings[words++] = strtok(argv[at], "=");
        settings[words++] = strtok(NULL, "");
    }
    ArgiopeCrawler *crawler = argiope_new(settings);
    if (!crawler)
        return fprintf(stderr, "%s\n", argiope_error()), 2;
    for (int first = at; at < argc; at++)
        if (argiope_submit(crawler, argv[at], at - first, NULL) != ARGIOPE_STATUS_OK)
            fprintf(stderr, "%s\n", argiope_error());
    argiope_close(crawler); /* Nothing more is submitted, so the crawl ends. */
    ArgiopeStatus status;
    do {
        struct pollfd ready = {argiope_fd(crawler), POLLIN, 0};
        status = argiope_turn(crawler, 0);
        for (ArgiopePage *page; (page = argiope_next(crawler)); argiope_page_free(page)) {
            ArgiopeView view = argiope_view(page);
            printf("%d %.*s %zu bytes %.*s\n", view.status, (int)view.url.length, view.url.data,
                   view.body.length, (int)view.error.length, view.error.data);
        }
        if (status == ARGIOPE_STATUS_OK)
            poll(&ready, 1, -1);
    } while (status == ARGIOPE_STATUS_OK);
    printf("%s\n", status == ARGIOPE_STATUS_OVER ? argiope_reason(crawler) : argiope_error());
    argiope_free(crawler);
}
