/* Fetches and inflates the pages of sites with libcurl's multi interface, 256 at a time.
 *
 *     cc -O2 -o curl_peer tools/race/curl_peer.c -lcurl
 *     curl_peer SEEDS PAGES
 *     curl_peer --version
 *
 * A peer in tools/race.py: not a crawler, but the least that one needs. Each seed ends in /p0; its site has
 * PAGES pages, /p0 and on, which are fetched in turn over one connection. Links are not read, nothing is
 * written. Exits on any status but 200. */

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IN_FLIGHT = 256, LINE = 1024 };

struct site {
    char url[LINE];
    size_t stem;
    long page;
    CURL *easy;
};

static CURLM *multi;
static FILE *seeds;
static long pages, done;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static size_t drop(char *bytes, size_t size, size_t number, void *user) {
    (void)bytes;
    (void)user;
    return size * number;
}

static void fetch(struct site *site) {
    snprintf(site->url + site->stem, LINE - site->stem, "%ld", site->page);
    curl_easy_setopt(site->easy, CURLOPT_URL, site->url);
    curl_multi_add_handle(multi, site->easy);
}

/* Continues with the next site of the file; returns 0 at its end. */
static int begin(struct site *site) {
    if (!fgets(site->url, LINE - 32, seeds))
        return 0;
    site->url[strcspn(site->url, "\n")] = 0;
    site->stem = strlen(site->url) - 1;
    site->page = 0;
    fetch(site);
    return 1;
}

int main(int argc, char **argv) {
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts(curl_version());
        return 0;
    }
    if (argc != 3 || !(seeds = fopen(argv[1], "r")) || (pages = atol(argv[2])) < 1)
        fail("usage", "curl_peer SEEDS PAGES");
    curl_global_init(CURL_GLOBAL_ALL);
    multi = curl_multi_init();
    curl_multi_setopt(multi, CURLMOPT_MAXCONNECTS, 2L * IN_FLIGHT);
    static struct site sites[IN_FLIGHT];
    int running = 0;
    for (int i = 0; i < IN_FLIGHT; i++) {
        struct site *site = &sites[i];
        CURL *easy = site->easy = curl_easy_init();
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop);
        curl_easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, "gzip");
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L);
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
        curl_easy_setopt(easy, CURLOPT_PRIVATE, site);
        running += begin(site);
    }
    while (running > 0) {
        int active, left;
        curl_multi_perform(multi, &active);
        for (CURLMsg *message; (message = curl_multi_info_read(multi, &left));) {
            struct site *site;
            long status = 0;
            curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&site);
            curl_easy_getinfo(message->easy_handle, CURLINFO_RESPONSE_CODE, &status);
            if (message->data.result != CURLE_OK || status != 200)
                fail(site->url, curl_easy_strerror(message->data.result));
            curl_multi_remove_handle(multi, site->easy);
            done++;
            if (++site->page < pages)
                fetch(site);
            else
                running -= !begin(site);
        }
        if (running > 0)
            curl_multi_poll(multi, NULL, 0, 1000, NULL);
    }
    printf("%ld pages\n", done);
    return 0;
}
