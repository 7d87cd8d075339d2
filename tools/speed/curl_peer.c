/* Fetches the URLs of a file with libcurl's multi interface, 256 at a time, each on a new connection.
 *
 *     cc -O2 -o curl_peer tools/speed/curl_peer.c -lcurl
 *     curl_peer FILE COUNT
 *     curl_peer --version
 *
 * A peer in tools/figures.py: libcurl, tuned. It uses epoll and curl_multi_socket_action, as libcurl's
 * documentation recommends for many connections. Drops bodies; exits on any status but 200. */

#include <curl/curl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>

enum { IN_FLIGHT = 256, EVENTS = 256, LINE = 1024 };

static CURLM *multi;
static int epoll;
static char **urls;
static long count, begun, done;
/* Deadline of libcurl's timer; negative: none. */
static double deadline = -1;

static void fail(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static size_t drop(char *bytes, size_t size, size_t number, void *user) {
    (void)bytes;
    (void)user;
    return size * number;
}

/* Registers the events that libcurl waits for on a socket. Registered sockets have a non-null `known`. */
static int watch(CURL *easy, curl_socket_t fd, int what, void *user, void *known) {
    (void)easy;
    (void)user;
    if (what == CURL_POLL_REMOVE) {
        epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL);
        return 0;
    }
    struct epoll_event event = {.data.fd = fd};
    event.events = (what & CURL_POLL_IN ? EPOLLIN : 0) | (what & CURL_POLL_OUT ? EPOLLOUT : 0);
    if (epoll_ctl(epoll, known ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0)
        fail("epoll_ctl", "a socket was not taken");
    if (!known)
        curl_multi_assign(multi, fd, &epoll);
    return 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static int set_timer(CURLM *of, long milliseconds, void *user) {
    (void)of;
    (void)user;
    deadline = milliseconds < 0 ? -1 : now() + (double)milliseconds / 1e3;
    return 0;
}

static void begin(CURL *easy) {
    if (begun == count)
        return;
    curl_easy_setopt(easy, CURLOPT_URL, urls[begun++]);
    curl_multi_add_handle(multi, easy);
}

static void take_finished(void) {
    CURLMsg *message;
    int left;
    while ((message = curl_multi_info_read(multi, &left)) != NULL) {
        CURL *easy = message->easy_handle;
        long status = 0;
        if (message->data.result != CURLE_OK)
            fail("a transfer failed", curl_easy_strerror(message->data.result));
        curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
        if (status != 200)
            fail("a page", "its status is not 200");
        done++;
        curl_multi_remove_handle(multi, easy);
        begin(easy);
    }
}

int main(int arguments, char **argument) {
    if (arguments == 2 && strcmp(argument[1], "--version") == 0) {
        printf("libcurl %s\n", curl_version_info(CURLVERSION_NOW)->version);
        return 0;
    }
    if (arguments != 3)
        fail("usage", "curl_peer FILE COUNT");
    FILE *file = fopen(argument[1], "r");
    long wanted = atol(argument[2]);
    if (file == NULL || wanted <= 0)
        fail("usage", "curl_peer FILE COUNT");
    urls = calloc((size_t)wanted, sizeof *urls);
    char line[LINE];
    while (count < wanted && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = 0;
        urls[count++] = strdup(line);
    }
    fclose(file);

    curl_global_init(CURL_GLOBAL_DEFAULT);
    epoll = epoll_create1(0);
    multi = curl_multi_init();
    curl_multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, watch);
    curl_multi_setopt(multi, CURLMOPT_TIMERFUNCTION, set_timer);
    double began = now();
    clock_t cpu = clock();
    for (int slot = 0; slot < IN_FLIGHT; slot++) {
        CURL *easy = curl_easy_init();
        curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop);
        curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
        curl_easy_setopt(easy, CURLOPT_FORBID_REUSE, 1L);
        /* Otherwise libcurl scans its DNS cache before each transfer. */
        curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, -1L);
        begin(easy);
    }
    int running = 0;
    struct epoll_event events[EVENTS];
    while (done < count) {
        double left = deadline - now();
        int patience = deadline < 0 ? -1 : left <= 0 ? 0 : (int)(left * 1e3) + 1;
        int ready = epoll_wait(epoll, events, EVENTS, patience);
        if (deadline >= 0 && now() >= deadline) {
            deadline = -1;
            curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
        }
        for (int number = 0; number < ready; number++) {
            unsigned int what = events[number].events;
            int bits = (what & EPOLLIN ? CURL_CSELECT_IN : 0) | (what & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                       (what & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
            curl_multi_socket_action(multi, events[number].data.fd, bits, &running);
        }
        take_finished();
    }
    double wall = now() - began;
    double each = (double)(clock() - cpu) / CLOCKS_PER_SEC / (double)done * 1e6;
    printf("%ld requests in %.3f s: %.0f/s, %.1f us of processor time each\n", done, wall, (double)done / wall,
           each);
    return 0;
}
