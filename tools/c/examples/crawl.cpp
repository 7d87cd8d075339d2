// A crawl in a poll loop, in C++: for each URL of the command line its status, its Content-Type, and the time
// until its first byte.
//
//     cargo build --release && ./install prefix
//     export PKG_CONFIG_PATH=prefix/lib/pkgconfig LD_LIBRARY_PATH=prefix/lib
//     g++ -std=c++17 examples/crawl.cpp $(pkg-config --cflags --libs argiope) -o crawl
//
// Settings come before the URLs, as NAME=VALUE.
#include <argiope.h>
#include <poll.h>
#include <strings.h>

#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

static std::string_view text(ArgiopeBytes bytes) {
    return {reinterpret_cast<const char *>(bytes.data), bytes.length};
}

// Names of header fields are the same in upper and lower case.
static bool is_named(ArgiopeField field, std::string_view name) {
    std::string_view own = text(field.name);
    return own.length() == name.length() && !strncasecmp(own.data(), name.data(), name.length());
}

int main(int argc, char **argv) {
    std::vector<std::string> words;
    int at = 1;
    for (; at < argc; at++) {
        std::string word = argv[at];
        size_t sign = word.find_first_of("=:"); // In a URL the colon is first.
        if (sign == std::string::npos || word[sign] == ':')
            break;
        words.push_back(word.substr(0, sign));
        words.push_back(word.substr(sign + 1));
    }
    std::vector<const char *> settings;
    for (const std::string &word : words)
        settings.push_back(word.c_str());
    settings.push_back(nullptr);

    std::unique_ptr<ArgiopeCrawler, decltype(&argiope_free)> crawler(argiope_new(settings.data()), argiope_free);
    if (!crawler) {
        std::cerr << argiope_error() << '\n';
        return 2;
    }
    for (; at < argc; at++)
        if (argiope_submit(crawler.get(), argv[at], 0, nullptr) != ARGIOPE_STATUS_OK)
            std::cerr << argiope_error() << '\n';
    argiope_close(crawler.get()); // Nothing more is submitted, so the crawl ends.
    ArgiopeStatus status;
    do {
        status = argiope_turn(crawler.get(), 0);
        while (ArgiopePage *next = argiope_next(crawler.get())) {
            std::unique_ptr<ArgiopePage, decltype(&argiope_page_free)> page(next, argiope_page_free);
            ArgiopeView view = argiope_view(page.get());
            std::cout << view.status << ' ' << text(view.url) << ' ' << text(view.error);
            for (size_t number = 0; number < view.field_count; number++)
                if (is_named(view.fields[number], "Content-Type"))
                    std::cout << text(view.fields[number].value);
            std::cout << ' ' << view.phases.first_byte << " ns\n";
        }
        pollfd ready = {argiope_fd(crawler.get()), POLLIN, 0};
        if (status == ARGIOPE_STATUS_OK)
            poll(&ready, 1, -1);
    } while (status == ARGIOPE_STATUS_OK);
    std::cout << (status == ARGIOPE_STATUS_OVER ? argiope_reason(crawler.get()) : argiope_error()) << '\n';
}
