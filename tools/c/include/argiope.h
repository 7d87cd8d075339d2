/* Argiope for programs in C: a crawl that runs in a loop of your own.
 *
 * Made by cbindgen from tools/c/src; `ARGIOPE_WRITE=1 cargo test` there makes it anew.
 *
 * - A crawler belongs to one thread at a time: it may move between calls, and no two calls with the
 *   same crawler may run at once. A handle may be used by any thread at any time.
 * - What a function gives as an owned pointer is the caller's, to be given back once to the function
 *   that its comment names. Null may be given back to any of them.
 * - Text goes in as UTF-8 with a zero at its end, and is copied. Text and bytes come out as a pointer
 *   and a length, without a zero, and belong to what they were asked of.
 * - No function calls back into the program, writes to standard output, or installs a signal handler.
 * - Nothing is thrown or unwound out of a function. Where one of ours is broken it says
 *   ARGIOPE_STATUS_BROKEN, and the crawler it was called with does nothing from then on.
 * - Where a function fails, argiope_error says why.
 */

#ifndef ARGIOPE_H
#define ARGIOPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// What came of a call.
typedef enum ArgiopeStatus {
  // It is done. Of a turn: the crawl goes on.
  ARGIOPE_STATUS_OK = 0,
  // The crawl is over.
  ARGIOPE_STATUS_OVER = 1,
  // There is no room now: try again after a turn.
  ARGIOPE_STATUS_FULL = 2,
  // What was said cannot be: `argiope_error` tells what.
  ARGIOPE_STATUS_REFUSED = 3,
  // We are broken; the crawler is to be freed.
  ARGIOPE_STATUS_BROKEN = 4,
} ArgiopeStatus;

// A crawl.
typedef struct ArgiopeCrawler ArgiopeCrawler;

// Feeds a crawl and steers it, from any thread; each call wakes a sleeping crawl at once.
typedef struct ArgiopeHandle ArgiopeHandle;

// A finished attempt.
typedef struct ArgiopePage ArgiopePage;

// Bytes that belong to something else. No zero stands behind them.
typedef struct ArgiopeBytes {
  // The first; null where there is nothing.
  const uint8_t *data;
  // How many.
  size_t length;
} ArgiopeBytes;

// What is known of a page. Its bytes hold until the page is freed.
typedef struct ArgiopeView {
  // Number of the attempt.
  uint64_t id;
  // Number of the request that it descends from by retries and redirects.
  uint64_t root;
  // What that was tagged with.
  uint64_t tag;
  // No retry or redirect goes on from here.
  bool is_final;
  // The status of the reply; 0 where there was none.
  uint16_t status;
  // From departure to the last byte of the head, in nanoseconds; -1 where it did not happen.
  int64_t server_latency;
  // `page`, `robots` or `sitemap`.
  struct ArgiopeBytes kind;
  // The URL, canonical.
  struct ArgiopeBytes url;
  // The body, decoded.
  struct ArgiopeBytes body;
  // The Content-Type field.
  struct ArgiopeBytes content_type;
  // What went wrong, as `kind.code` (`dns.nxdomain`); nothing where nothing did.
  struct ArgiopeBytes error;
  // The reply as it came, head and body.
  struct ArgiopeBytes response;
  // The JSON that the request had for `meta`.
  struct ArgiopeBytes meta;
} ArgiopeView;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Makes a crawler. `settings` is an array of names and values in turn (`"DOWNLOAD_DELAY", "250ms"`)
// that ends with a null; it may be null itself. Gives null where a setting cannot be, or the kernel
// refuses. To be given back to `argiope_free`.
//
// # Safety
// `settings` is null, or such an array of texts.
struct ArgiopeCrawler *argiope_new(const char *const *settings);

// Submits a request: a URL, or a JSON object with `url` and what else a line of seeds may say
// (`method`, `headers`, `body_b64`, `scopes`, `priority`, `depth`, `sitemap`, `timeout` in seconds, `body_max` in
// bytes, `private_headers`, `proxy`, `meta`, `tag`, and true for any of `dont_adjust_delay`,
// `dont_filter`, `dont_follow`, `dont_merge_cookies`, `dont_send_credentials`, `ignore_robots`). `tag`
// comes back with its pages; 0 leaves that of the object.
// Where `id` is not null it gets the request's number, which is `root` of each of its pages.
//
// `ARGIOPE_FULL` where 4096 wait to be taken in, `ARGIOPE_REFUSED` where it can never be sent,
// `ARGIOPE_OVER` after the end or `argiope_close`.
//
// # Safety
// `crawler` comes from `argiope_new` and is not in use elsewhere; `request` is a text; `id` is null
// or may be written to.
enum ArgiopeStatus argiope_submit(struct ArgiopeCrawler *crawler,
                                  const char *request,
                                  uint64_t tag,
                                  uint64_t *id);

// Says that no more is submitted here: the crawl ends when all is done and no handle lives.
//
// # Safety
// `crawler` comes from `argiope_new` and is not in use elsewhere.
void argiope_close(struct ArgiopeCrawler *crawler);

// The descriptor to wait for: readable when a turn is to be taken, which also is when anything is
// due. The same until `argiope_free`, to which closing it is left. -1 where `crawler` is null or
// broken.
//
// # Safety
// As `argiope_close`.
int argiope_fd(const struct ArgiopeCrawler *crawler);

// One turn: what has arrived is taken, what is due is done, as far as that takes a millisecond or so.
// Waits for news for `patience` nanoseconds at most, for ever if it is negative. With 0 it does not
// wait, and sets the descriptor for a wait of yours. `ARGIOPE_OK` while the crawl goes on, then
// `ARGIOPE_OVER`; pages may be there in either case.
//
// # Safety
// As `argiope_close`.
enum ArgiopeStatus argiope_turn(struct ArgiopeCrawler *crawler,
                                int64_t patience);

// The next finished page, or null if none waits. To be given back to `argiope_page_free`. While a
// thousand wait the crawl is held back.
//
// # Safety
// As `argiope_close`.
struct ArgiopePage *argiope_next(struct ArgiopeCrawler *crawler);

// What was measured so far: a JSON object with the keys of `stats.json`. Nothing where `crawler` is null
// or broken. It holds until the next call of this, or `argiope_free`.
//
// # Safety
// As `argiope_close`.
struct ArgiopeBytes argiope_stats(struct ArgiopeCrawler *crawler);

// Why the crawl is over (`finished`, `shutdown`, …); null while it goes on. Never to be freed.
//
// # Safety
// As `argiope_close`.
const char *argiope_reason(const struct ArgiopeCrawler *crawler);

// A handle for other threads; null once the crawl is over. The crawl does not end while one lives.
// To be given back to `argiope_handle_free`.
//
// # Safety
// As `argiope_close`.
struct ArgiopeHandle *argiope_handle(const struct ArgiopeCrawler *crawler);

// Ends a crawl at once, and frees it with the pages that were not taken. Its handles say
// `ARGIOPE_OVER` from then on, and are still to be freed.
//
// # Safety
// As `argiope_close`; the pointer is not used again.
void argiope_free(struct ArgiopeCrawler *crawler);

// Why the last call of this thread that failed did so; null if none has. Belongs to the library, and
// holds until the thread's next call of another function.
const char *argiope_error(void);

// Submits a request, as `argiope_submit`. Never waits.
//
// # Safety
// `handle` comes from `argiope_handle`; `request` is a text; `id` is null or may be written to.
enum ArgiopeStatus argiope_handle_submit(const struct ArgiopeHandle *handle,
                                         const char *request,
                                         uint64_t tag,
                                         uint64_t *id);

// Cancels the request of this number, wherever it is: its last page fails as `cancelled.asked`.
//
// # Safety
// `handle` comes from `argiope_handle`.
enum ArgiopeStatus argiope_handle_cancel(const struct ArgiopeHandle *handle, uint64_t id);

// Cancels all that are throttled under this scope.
//
// # Safety
// As `argiope_handle_cancel`; `name` is a text.
enum ArgiopeStatus argiope_handle_cancel_scope(const struct ArgiopeHandle *handle,
                                               const char *name);

// Says something else of a scope from now on. `settings` is its entry of `THROTTLING_SCOPES`, a JSON
// object as `{"delay": "2s"}`; an empty one takes back all that was said of it. `name` may be a host, a
// scope of your own, a pattern as `*.example.com`, or `default`.
//
// # Safety
// As `argiope_handle_cancel`; `name` and `settings` are texts.
enum ArgiopeStatus argiope_handle_set_scope(const struct ArgiopeHandle *handle,
                                            const char *name,
                                            const char *settings);

// Lets nothing more depart, or lets requests depart again.
//
// # Safety
// As `argiope_handle_cancel`.
void argiope_handle_pause(const struct ArgiopeHandle *handle, bool paused);

// Ends the crawl in good order: nothing more is sent, what is in flight is finished within `grace`
// nanoseconds and then cancelled.
//
// # Safety
// As `argiope_handle_cancel`.
void argiope_handle_shutdown(const struct ArgiopeHandle *handle, uint64_t grace);

// Gives a handle back. The crawl may end after the last.
//
// # Safety
// As `argiope_handle_cancel`; the pointer is not used again.
void argiope_handle_free(struct ArgiopeHandle *handle);

// What is known of a page; nothing of a null.
//
// # Safety
// `page` is null, or comes from `argiope_next` and has not been freed.
struct ArgiopeView argiope_view(const struct ArgiopePage *page);

// Gives a page back.
//
// # Safety
// As `argiope_view`, or null; neither it nor its bytes are used again.
void argiope_page_free(struct ArgiopePage *page);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* ARGIOPE_H */
