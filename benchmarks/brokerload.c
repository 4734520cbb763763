/* Load generator for brokers: one thread, epoll, plain sends or pulls.
 *
 *   brokerload send HOST PORT CONNECTIONS WINDOW SECONDS TOPIC QUEUES BODY LIMIT
 *   brokerload pull HOST PORT CONNECTIONS WINDOW SECONDS TOPIC QUEUES COUNT LENGTH
 *
 * Each connection keeps WINDOW requests under way; the next ones go out together, in one write, for
 * all the answers that one read brought. Sends are SEND_MESSAGE_V2 as a Java client writes them, with
 * BODY bytes and a unique id, to the queues in turn; they end when LIMIT are stored, unless it is 0.
 * Pulls ask for COUNT messages each and begin again at the front when a queue's LENGTH is read.
 *
 * Prints one JSON object: messages, answers, failures, requests still under way at the end, seconds,
 * latencies of requests in microseconds, and the CPU seconds that the generator used, so that a reader
 * sees it was not the bottleneck. What the first failure was goes to standard error.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define IN (4 << 20)
#define HEADER 1024
#define BUCKETS 400000 /* of 1 us each; slower answers share the last */
#define FIRST_OPAQUE 1000000000 /* ten digits, so that all headers are of one size */

struct slot { /* one request under way; its number is the opaque of the request */
    uint64_t sent_at;
    long offset; /* pulls: what it asks for next */
    char *frame; /* sends: all but the unique id and the queue is written once */
    size_t size, id_at, queue_at;
};

struct connection {
    int fd;
    char *in, *out;
    size_t have, ready;
    struct slot *slots;
};

static struct { /* the command line */
    bool pulls;
    const char *topic;
    int connections, window, queues, size;
    double seconds;
    long limit;
} want;

static long answers, failures, messages, asked, under_way;
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

/* ---- requests */

static size_t put_frame(char *to, const char *header, size_t header_size, size_t body_size)
{
    uint32_t total = htonl((uint32_t)(4 + header_size + body_size));
    uint32_t word = htonl((uint32_t)header_size);
    memcpy(to, &total, 4);
    memcpy(to + 4, &word, 4);
    memcpy(to + 8, header, header_size);
    return 8 + header_size + body_size;
}

static void build_send(struct slot *s, int opaque)
{
    char header[HEADER];
    int n = snprintf(header, sizeof header,
        "{\"code\":310,\"extFields\":{\"a\":\"bench_producer\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"4\","
        "\"e\":\"#\",\"f\":\"0\",\"g\":\"%ld000\",\"h\":\"0\",\"i\":\"UNIQ_KEY\\u0001%032d\\u0002WAIT"
        "\\u0001true\\u0002TAGS\\u0001TagA\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"},\"flag\":0,"
        "\"language\":\"JAVA\",\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
        want.topic, (long)time(NULL), 0, FIRST_OPAQUE + opaque);
    s->frame = malloc(8 + (size_t)n + (size_t)want.size);
    s->size = put_frame(s->frame, header, (size_t)n, (size_t)want.size);
    memset(s->frame + 8 + n, 'x', (size_t)want.size);
    s->queue_at = 8 + (size_t)(strchr(header, '#') - header);
    s->id_at = 8 + (size_t)(strstr(header, "UNIQ_KEY\\u0001") - header) + 14;
}

static void ask_send(struct connection *c, struct slot *s)
{
    static const char digits[] = "0123456789ABCDEF";
    uint64_t number = (uint64_t)asked;
    for (int i = 31; i >= 20; i--, number >>= 4)
        s->frame[s->id_at + (size_t)i] = digits[number & 15];
    s->frame[s->queue_at] = (char)('0' + asked % want.queues);
    memcpy(c->out + c->ready, s->frame, s->size);
    c->ready += s->size;
}

static void ask_pull(struct connection *c, struct slot *s, int opaque)
{
    char header[HEADER];
    if (s->offset + want.size > want.limit)
        s->offset = 0;
    int n = snprintf(header, sizeof header,
        "{\"code\":11,\"extFields\":{\"consumerGroup\":\"bench_consumer\",\"topic\":\"%s\",\"queueId\":"
        "\"%d\",\"queueOffset\":\"%ld\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"6\",\"commitOffset\":\"0\","
        "\"suspendTimeoutMillis\":\"15000\",\"subscription\":\"*\",\"subVersion\":\"0\","
        "\"expressionType\":\"TAG\"},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}",
        want.topic, opaque % want.queues, s->offset, want.size, FIRST_OPAQUE + opaque);
    s->offset += want.size;
    c->ready += put_frame(c->out + c->ready, header, (size_t)n, 0);
}

static void ask(struct connection *c, struct slot *s, int opaque)
{
    if (!want.pulls && want.limit && messages + under_way >= want.limit)
        return;
    if (want.pulls)
        ask_pull(c, s, opaque);
    else
        ask_send(c, s);
    s->sent_at = now_ns();
    asked++;
    under_way++;
}

static void flush_out(struct connection *c)
{
    for (size_t at = 0; at < c->ready;) {
        ssize_t n = send(c->fd, c->out + at, c->ready - at, MSG_NOSIGNAL);
        if (n < 0)
            die("send");
        at += (size_t)n;
    }
    c->ready = 0;
}

/* ---- answers */

static long count_records(const char *body, size_t size)
{
    long found = 0;
    for (size_t at = 0; at + 4 <= size; found++) {
        uint32_t word;
        memcpy(&word, body + at, 4);
        if (ntohl(word) < 4)
            return -1;
        at += ntohl(word);
    }
    return found;
}

static void fail(const char *header, size_t size)
{
    if (failures++ == 0)
        fprintf(stderr, "first failure: %.*s\n", (int)size, header);
}

static void take(struct connection *c, int number, const char *frame, size_t size)
{
    uint32_t word;
    memcpy(&word, frame + 4, 4);
    size_t header_size = ntohl(word) & 0xffffff;
    const char *header = frame + 8, *opaque = memmem(header, header_size, "\"opaque\":", 9);
    int slot = opaque ? atoi(opaque + 9) - FIRST_OPAQUE - number * want.window : -1;
    if (slot < 0 || slot >= want.window) {
        fprintf(stderr, "an answer to no request: %.*s\n", (int)header_size, header);
        exit(1);
    }
    struct slot *s = &c->slots[slot];
    uint64_t us = (now_ns() - s->sent_at) / 1000;
    histogram[us < BUCKETS ? us : BUCKETS - 1]++;
    under_way--;
    long count = want.pulls ? count_records(header + header_size, size - 8 - header_size) : 1;
    if (memmem(header, header_size, "\"code\":0,", 9) && count > 0) {
        answers++;
        messages += count;
    } else {
        fail(header, header_size);
    }
    ask(c, s, number * want.window + slot);
}

static void receive(struct connection *c, int number)
{
    ssize_t n = recv(c->fd, c->in + c->have, IN - c->have, 0);
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
        take(c, number, c->in + at, length);
        at += length;
    }
    memmove(c->in, c->in + at, c->have - at);
    c->have -= at;
    flush_out(c);
}

/* ---- the run */

static void open_connection(struct connection *c, int number, struct sockaddr_in *address)
{
    int on = 1;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)address, sizeof *address))
        die("connect");
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    c->in = malloc(IN);
    c->out = malloc((size_t)want.window * (HEADER + 8 + (want.pulls ? 0 : (size_t)want.size)));
    c->slots = calloc((size_t)want.window, sizeof *c->slots);
    for (int i = 0; i < want.window; i++) {
        int opaque = number * want.window + i;
        /* those that share a queue begin at different places of it */
        long steps = want.pulls ? want.limit / want.size : 0;
        c->slots[i].offset = want.pulls ? opaque * 7 % steps * want.size : 0;
        if (!want.pulls)
            build_send(&c->slots[i], opaque);
    }
}

static void start(struct connection *c, int number)
{
    for (int i = 0; i < want.window; i++)
        ask(c, &c->slots[i], number * want.window + i);
    flush_out(c);
}

static long percentile(double part)
{
    long total = answers + failures, seen = 0;
    for (long us = 0; us < BUCKETS; us++)
        if ((seen += histogram[us]) >= (long)((double)total * part))
            return us;
    return BUCKETS;
}

static void report(double took)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"messages\": %ld, \"answers\": %ld, \"failures\": %ld, \"unanswered\": %ld, \"seconds\": %.3f, "
           "\"p50_us\": %ld, \"p99_us\": %ld, \"p999_us\": %ld, \"generator_cpu_seconds\": %.3f}\n",
           messages, answers, failures, under_way, took, percentile(0.5), percentile(0.99),
           percentile(0.999), cpu);
}

static struct sockaddr_in read_arguments(char **argv)
{
    want.pulls = !strcmp(argv[1], "pull");
    want.connections = atoi(argv[4]);
    want.window = atoi(argv[5]);
    want.seconds = atof(argv[6]);
    want.topic = argv[7];
    want.queues = atoi(argv[8]);
    want.size = atoi(argv[9]);
    want.limit = atol(argv[10]);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[3]))};
    if (inet_pton(AF_INET, argv[2], &address.sin_addr) != 1)
        die("address");
    if (want.queues > 10 || (want.pulls && want.limit < want.size)) {
        fprintf(stderr, "at most 10 queues, and a LENGTH of at least COUNT\n");
        exit(2);
    }
    return address;
}

int main(int argc, char **argv)
{
    if (argc != 11) {
        fprintf(stderr, "usage: brokerload send|pull HOST PORT CONNECTIONS WINDOW SECONDS TOPIC QUEUES"
                        " BODY|COUNT LIMIT|LENGTH\n");
        return 2;
    }
    struct sockaddr_in address = read_arguments(argv);
    int poll = epoll_create1(0);
    struct connection *all = calloc((size_t)want.connections, sizeof *all);
    for (int i = 0; i < want.connections; i++) {
        open_connection(&all[i], i, &address);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &event);
    }
    uint64_t begin = now_ns(), end = begin + (uint64_t)(want.seconds * 1e9);
    for (int i = 0; i < want.connections; i++)
        start(&all[i], i);
    struct epoll_event events[256];
    while (now_ns() < end && under_way) {
        int n = epoll_wait(poll, events, 256, 5000);
        if (n == 0)
            break; /* a server that stopped answering is reported by the count */
        for (int i = 0; i < n; i++)
            receive(&all[events[i].data.u32], (int)events[i].data.u32);
    }
    report((double)(now_ns() - begin) / 1e9);
    return 0;
}
