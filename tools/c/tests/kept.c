/* A crawl with a state that may end at any page: kept FOLDER PORT PAGES. Prints the epoch before this run, then
 * the epoch and URL of each page; ends without notice after that many pages. */
#include <argiope.h>
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    assert(argc == 4);
    char resolve[64];
    snprintf(resolve, sizeof resolve, "*:80:127.0.0.1:%s", argv[2]);
    const char *settings[] = {"ALLOW_NET", "loopback", "DOWNLOAD_DELAY", "5ms", "RESOLVE", resolve,
                              "STATE_SYNC", "20ms", NULL};
    assert(!argiope_new_with_state(settings, NULL));
    ArgiopeCrawler *crawler = argiope_new_with_state(settings, argv[1]);
    if (!crawler)
        return fprintf(stderr, "%s\n", argiope_error()), 2;
    /* A second one is refused while this one has the directory. */
    assert(!argiope_new_with_state(settings, argv[1]) && strstr(argiope_error(), "in use"));
    uint64_t epoch = argiope_committed_epoch(crawler);
    printf("%d\n", (int)epoch);
    for (int number = 0; epoch == 0 && number < 60; number++) {
        char url[64];
        snprintf(url, sizeof url, "http://a.test/%d", number);
        assert(argiope_submit(crawler, url, 0, NULL) == ARGIOPE_STATUS_OK);
    }
    argiope_close(crawler);
    int left = atoi(argv[3]);
    while (argiope_turn(crawler, -1) == ARGIOPE_STATUS_OK)
        for (ArgiopePage *page; (page = argiope_next(crawler)); argiope_page_free(page)) {
            ArgiopeView view = argiope_view(page);
            printf("%d %.*s\n", (int)view.epoch, (int)view.url.length, view.url.data);
            fflush(stdout);
            if (!--left)
                _exit(9);
            argiope_acknowledge(crawler, view.id);
        }
    assert(!strcmp(argiope_reason(crawler), "finished"));
    argiope_free(crawler);
    return 0;
}
