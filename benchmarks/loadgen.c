/* Load generator for route look-ups: one thread, epoll, frames built ahead of time.
 *
 *   loadgen HOST PORT CONNECTIONS WINDOW SECONDS TOPICS
 *
 * Each connection keeps WINDOW requests (GET_ROUTEINFO_BY_TOPIC) in flight, for bench-0000 to
 * bench-<TOPICS - 1> round robin. Prints one JSON object: responses, failures, seconds, latencies in
 * microseconds, and the generator's own CPU seconds, which show that it was not the bottleneck.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define BUFFER (1 << 20)
#define BUCKETS 200000 /* of 1 us each; the last one counts all slower responses */

struct connection {
    int fd;
    char *in;
    size_t have;
    uint64_t *sent_at; /* ring of WINDOW start times; responses arrive in order */
    unsigned head, tail;
};

static char **frames;
static size_t *frame_sizes;
static int topics, window;
static long answers, failures, requests;
static uint32_t histogram[BUCKETS];

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void build_frames(void)
{
    frames = calloc((size_t)topics, sizeof *frames);
    frame_sizes = calloc((size_t)topics, sizeof *frame_sizes);
    for (int i = 0; i < topics; i++) {
        char header[256];
        int n = snprintf(header, sizeof header,
                         "{\"code\":105,\"extFields\":{\"topic\":\"bench-%04d\"},\"flag\":0,"
                         "\"language\":\"JAVA\",\"opaque\":%d,"
                         "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}", i, i);
        uint32_t total = htonl((uint32_t)n + 4), word = htonl((uint32_t)n);
        frames[i] = malloc((size_t)n + 8);
        memcpy(frames[i], &total, 4);
        memcpy(frames[i] + 4, &word, 4);
        memcpy(frames[i] + 8, header, (size_t)n);
        frame_sizes[i] = (size_t)n + 8;
    }
}

static void send_request(struct connection *c)
{
    int i = (int)(requests++ % topics);
    c->sent_at[c->head++ % (unsigned)window] = now_ns();
    if (send(c->fd, frames[i], frame_sizes[i], MSG_NOSIGNAL) != (ssize_t)frame_sizes[i])
        die("send");
}

static void handle_response(struct connection *c, const char *frame, uint32_t size)
{
    uint64_t us = (now_ns() - c->sent_at[c->tail++ % (unsigned)window]) / 1000;
    histogram[us < BUCKETS ? us : BUCKETS - 1]++;
    uint32_t word;
    memcpy(&word, frame + 4, 4);
    uint32_t header = ntohl(word) & 0xffffff;
    if (header + 8 <= size && memmem(frame + 8, header, "\"code\":0,", 9) && size > header + 8)
        answers++;
    else
        failures++;
}

static void receive(struct connection *c)
{
    ssize_t n = recv(c->fd, c->in + c->have, BUFFER - c->have, 0);
    if (n <= 0)
        die("recv");
    c->have += (size_t)n;
    size_t at = 0;
    while (c->have - at >= 4) {
        uint32_t length;
        memcpy(&length, c->in + at, 4);
        length = ntohl(length) + 4;
        if (c->have - at < length)
            break;
        handle_response(c, c->in + at, length);
        at += length;
        send_request(c);
    }
    memmove(c->in, c->in + at, c->have - at);
    c->have -= at;
}

static long percentile(double part)
{
    long total = answers + failures, seen = 0;
    for (long us = 0; us < BUCKETS; us++)
        if ((seen += histogram[us]) >= (long)((double)total * part))
            return us;
    return BUCKETS;
}

int main(int argc, char **argv)
{
    if (argc != 7) {
        fprintf(stderr, "usage: loadgen HOST PORT CONNECTIONS WINDOW SECONDS TOPICS\n");
        return 2;
    }
    int count = atoi(argv[3]);
    double seconds = atof(argv[5]);
    window = atoi(argv[4]);
    topics = atoi(argv[6]);
    build_frames();

    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2]))};
    if (inet_pton(AF_INET, argv[1], &address.sin_addr) != 1)
        die("address");
    int poll = epoll_create1(0);
    struct connection *all = calloc((size_t)count, sizeof *all);
    for (int i = 0; i < count; i++) {
        struct connection *c = &all[i];
        int on = 1;
        c->fd = socket(AF_INET, SOCK_STREAM, 0);
        if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof address))
            die("connect");
        setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        c->in = malloc(BUFFER);
        c->sent_at = calloc((size_t)window, sizeof *c->sent_at);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        epoll_ctl(poll, EPOLL_CTL_ADD, c->fd, &event);
    }
    uint64_t start = now_ns(), end = start + (uint64_t)(seconds * 1e9);
    for (int i = 0; i < count; i++)
        for (int j = 0; j < window; j++)
            send_request(&all[i]);
    struct epoll_event events[256];
    while (now_ns() < end) {
        int n = epoll_wait(poll, events, 256, 1000);
        if (n == 0)
            break; /* the counts show that the server stopped responding */
        for (int i = 0; i < n; i++)
            receive(events[i].data.ptr);
    }
    double took = (double)(now_ns() - start) / 1e9;
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"answers\": %ld, \"failures\": %ld, \"seconds\": %.3f, \"p50_us\": %ld, "
           "\"p99_us\": %ld, \"p999_us\": %ld, \"generator_cpu_seconds\": %.3f}\n",
           answers, failures, took, percentile(0.5), percentile(0.99), percentile(0.999), cpu);
    return 0;
}
