/* Load generator for brokers: one thread, epoll; sends, pulls, or both at once.
 *
 *   brokerload send|pull|live HOST PORT[,PORT] CONNECTIONS WINDOW SECONDS TOPIC QUEUES SIZE LIMIT [NAME=VALUE]
 *   brokerload idle HOST PORT CONNECTIONS
 *
 * Each connection keeps WINDOW requests in flight. For all responses of one read, the next requests are
 * sent in one write. Connections are assigned to several ports round robin.
 *
 * send   SEND_MESSAGE_V2 as a Java client writes it, with SIZE bytes and a unique id, to the queues
 *        round robin; ends when LIMIT messages are stored, unless LIMIT is 0 or a rate is given.
 *          batch=N     N messages in each request (SEND_BATCH_MESSAGE)
 *          oneway=N    N one-way sends before each send with a response
 *          rate=R      R messages per second, independent of response times, with at most WINDOW in
 *                      flight on a connection; latency counts from the time a request was due
 *          topics=N    the topics TOPIC-0000, TOPIC-0001, ... round robin, each with QUEUES queues
 *          marked=1    one message in ten has the tag TagB, and each has a property n from 0 to 9
 * pull   PULL_MESSAGE for SIZE messages each; starts over when LIMIT messages of a queue are read.
 *          once=1      each queue is read once, by the connection of its number
 *          filter=TEXT, type=TAG|SQL92   the expression of the subscription
 * live   sends as above, and consumers:
 *          consumers=N connections that long-poll the ends of the queues, divided among them; messages
 *                      counts those received, latency is from the write to the receipt
 * All but idle, if compiled with -DSIGNED (needs libcrypto):
 *          access_key=TEXT, secret_key=TEXT   sign each request, as a Java client with AclClientRPCHook
 * idle   opens the connections, prints a line, and keeps them open until standard input ends.
 *
 * Prints one JSON object: messages, responses, failures, requests in flight at the end, seconds,
 * latencies in microseconds, and the generator's own CPU seconds, which show that it was not the
 * bottleneck. The first failure is printed to standard error.
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
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>
#ifdef SIGNED
#define OPENSSL_SUPPRESS_DEPRECATED /* the functions that keep their state in a plain structure */
#include <openssl/sha.h>
#endif

#define IN (4 << 20)
#define HEADER 1024
#define BUCKETS 400000 /* of 1 us each; the last one counts all slower responses */
#define FIRST_OPAQUE 1000000000 /* ten digits, so that all headers have the same size */
#define TIMER UINT32_MAX
#define PORTS 16
#define BODY_AT 88 /* in a stored record: MessageDecoder.BODY_SIZE_POSITION + 4 */
#define LIVE_COUNT 32

struct request { /* one of the window's requests; its index is the opaque on the wire */
    uint64_t sent_at;
    long offset; /* pulls: the next queue offset */
    int queue;
};

struct connection {
    int fd, window;
    bool pulls;
    char *in, *out;
    size_t have, ready;
    struct request *requests;
    int *idle, idle_count; /* with a rate: indices of requests not in flight */
};

struct histogram {
    uint32_t buckets[BUCKETS];
    long total;
};

static struct { /* the command line */
    bool pulls, live, once, marked;
    const char *topic, *filter, *type, *access_key, *secret_key;
    int connections, window, queues, size, batch, oneway, topics, consumers;
    int ports[PORTS], port_count;
    double seconds, rate;
    long limit;
} want = {.batch = 1, .topics = 0, .filter = "*", .type = "TAG"};

static long answers, failures, messages, sent, numbered, batches, in_flight, unsent;
static struct histogram latencies, lateness;
static char *batch_body;
static size_t record_size, batch_size;

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

static void record_latency(struct histogram *h, uint64_t ns)
{
    uint64_t us = ns / 1000;
    h->buckets[us < BUCKETS ? us : BUCKETS - 1]++;
    h->total++;
}

static long percentile(const struct histogram *h, double part)
{
    long seen = 0;
    for (long us = 0; us < BUCKETS; us++)
        if ((seen += h->buckets[us]) >= (long)((double)h->total * part) && seen)
            return us;
    return 0;
}

/* ---- signatures */

#define SIGNATURE 28
#define CREDENTIALS "\",\"AccessKey\":\"%s\",\"Signature\":\""

#ifdef SIGNED
static SHA_CTX inner, outer; /* HMAC: the key has been hashed into both */

static void begin_pad(SHA_CTX *sha, unsigned char byte)
{
    unsigned char pad[64];
    memset(pad, byte, sizeof pad);
    for (size_t i = 0; want.secret_key[i] && i < sizeof pad; i++)
        pad[i] ^= (unsigned char)want.secret_key[i];
    SHA1_Init(sha);
    SHA1_Update(sha, pad, sizeof pad);
}

static void prepare_signatures(void)
{
    begin_pad(&inner, 0x36);
    begin_pad(&outer, 0x5c);
}

static void sign(char *to, const char *values, size_t size, const char *body, size_t body_size)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char digest[SHA_DIGEST_LENGTH + 1] = {0};
    SHA_CTX sha = inner;
    SHA1_Update(&sha, values, size);
    SHA1_Update(&sha, body, body_size);
    SHA1_Final(digest, &sha);
    sha = outer;
    SHA1_Update(&sha, digest, SHA_DIGEST_LENGTH);
    SHA1_Final(digest, &sha);
    for (int i = 0; i < 7; i++) {
        unsigned three = (unsigned)digest[3 * i] << 16 | (unsigned)digest[3 * i + 1] << 8 | digest[3 * i + 2];
        for (int j = 0; j < 4; j++)
            to[4 * i + j] = letters[three >> (18 - 6 * j) & 63];
    }
    to[SIGNATURE - 1] = '=';
}
#else
static void prepare_signatures(void)
{
    fprintf(stderr, "brokerload was compiled without -DSIGNED\n");
    exit(2);
}

static void sign(char *to, const char *values, size_t size, const char *body, size_t body_size)
{
    (void)to, (void)values, (void)size, (void)body, (void)body_size;
}
#endif

/* ---- requests */

static char *put(char *to, const char *text)
{
    size_t n = strlen(text);
    memcpy(to, text, n);
    return to + n;
}

static char *put_number(char *to, long number)
{
    char digits[20];
    int n = 0;
    do
        digits[n++] = (char)('0' + number % 10);
    while (number /= 10);
    while (n)
        *to++ = digits[--n];
    return to;
}

static char *put_id(char *to, uint64_t number)
{
    static const char digits[] = "0123456789ABCDEF";
    memset(to, '0', 32);
    for (int i = 31; i >= 20; i--, number >>= 4)
        to[i] = digits[number & 15];
    return to + 32;
}

static void put_word(char *to, size_t value)
{
    uint32_t word = htonl((uint32_t)value);
    memcpy(to, &word, 4);
}

static char *put_topic(char *to, long number)
{
    to = put(to, want.topic);
    if (!want.topics)
        return to;
    int which = (int)(number % want.topics);
    *to++ = '-';
    for (int power = 1000; power; power /= 10)
        *to++ = (char)('0' + which / power % 10);
    return to;
}

static char *put_properties(char *to, long number)
{
    int mark = (int)(number / want.queues % 10); /* spreads the marked messages over all queues */
    if (want.batch > 1)
        return put(to, "WAIT\\u0001true");
    to = put(to, "UNIQ_KEY\\u0001");
    to = put_id(to, (uint64_t)number);
    to = put(to, "\\u0002WAIT\\u0001true\\u0002TAGS\\u0001");
    to = put(to, want.marked && mark == 3 ? "TagB" : "TagA");
    if (want.marked) {
        to = put(to, "\\u0002n\\u0001");
        *to++ = (char)('0' + mark);
    }
    return to;
}

/* Ends the fields of a header behind the last value; sets where the signature goes, if any. */
static char *end_fields(char *to, char **signature)
{
    *signature = NULL;
    if (want.access_key) {
        to += sprintf(to, CREDENTIALS, want.access_key);
        *signature = to;
        memset(to, '=', SIGNATURE);
        to += SIGNATURE;
    }
    return put(to, "\"}");
}

static long born_seconds;

/* The values of the fields of a send in the order of their names, as they are signed. */
static size_t send_values(char *to, long number)
{
    char *begin = to, properties[HEADER];
    long turn = want.topics ? number / want.topics : number;
    to = put(put(to, want.access_key), "bench_producer");
    to = put(put_topic(to, number), "TBW1024");
    to = put(put_number(to, turn % want.queues), "0");
    to = put(put_number(to, born_seconds * 1000), "0");
    char *end = put_properties(properties, number);
    for (char *at = properties; at < end; at++)
        if (*at == '\\') { /* all escapes are \u0001 or \u0002 */
            *to++ = (char)(at[5] - '0');
            at += 5;
        } else
            *to++ = *at;
    to = put(to, "0false");
    return (size_t)(put(to, want.batch > 1 ? "true" : "false") - begin);
}

static char *put_send_header(char *to, long number, int opaque, bool oneway, char **signature)
{
    if (!(number & 1023))
        born_seconds = (long)time(NULL);
    to = put(to, want.batch > 1 ? "{\"code\":320" : "{\"code\":310");
    to = put(to, ",\"extFields\":{\"a\":\"bench_producer\",\"b\":\"");
    to = put_topic(to, number);
    to = put(to, "\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"");
    long turn = want.topics ? number / want.topics : number;
    to = put_number(to, turn % want.queues);
    to = put(to, "\",\"f\":\"0\",\"g\":\"");
    to = put_number(to, born_seconds * 1000);
    to = put(to, "\",\"h\":\"0\",\"i\":\"");
    to = put_properties(to, number);
    to = put(to, "\",\"j\":\"0\",\"k\":\"false\",\"m\":\"");
    to = end_fields(put(to, want.batch > 1 ? "true" : "false"), signature);
    to = put(to, oneway ? ",\"flag\":2" : ",\"flag\":0");
    to = put(to, ",\"language\":\"JAVA\",\"opaque\":");
    to = put_number(to, FIRST_OPAQUE + opaque);
    return put(to, ",\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}");
}

static void stamp(char *body, uint64_t now)
{
    if (want.size >= 8)
        memcpy(body, &now, 8);
}

/* The format of MessageDecoder.encodeMessages; batches differ only in ids and timestamps. */
static void build_batch(void)
{
    static const char tail[] = "\2WAIT\1true\2TAGS\1TagA";
    size_t properties = 9 + 32 + sizeof tail - 1;
    record_size = 20 + (size_t)want.size + 2 + properties;
    batch_size = record_size * (size_t)want.batch;
    batch_body = calloc(1, batch_size);
    for (char *at = batch_body; at < batch_body + batch_size; at += record_size) {
        put_word(at, record_size);
        put_word(at + 16, (size_t)want.size);
        memset(at + 20, 'x', (size_t)want.size);
        char *more = at + 20 + want.size;
        more[0] = (char)(properties >> 8);
        more[1] = (char)properties;
        memcpy(more + 2, "UNIQ_KEY\1", 9);
        memcpy(more + 2 + 9 + 32, tail, sizeof tail - 1);
    }
}

static char *put_body(char *to, uint64_t now)
{
    if (want.batch == 1) {
        memset(to, 'x', (size_t)want.size);
        stamp(to, now);
        return to + want.size;
    }
    memcpy(to, batch_body, batch_size);
    for (int i = 0; i < want.batch; i++, to += record_size) {
        stamp(to + 20, now);
        put_id(to + 20 + want.size + 2 + 9, (uint64_t)(numbered++));
    }
    return to;
}

static void put_send(struct connection *c, int index, uint64_t now, bool oneway)
{
    char *frame = c->out + c->ready;
    long number = want.batch > 1 ? batches++ : numbered++;
    char *signature, values[HEADER];
    char *body = put_send_header(frame + 8, number, index, oneway, &signature);
    put_word(frame + 4, (size_t)(body - frame - 8));
    char *end = put_body(body, now);
    if (signature)
        sign(signature, values, send_values(values, number), body, (size_t)(end - body));
    put_word(frame, (size_t)(end - frame - 4));
    c->ready = (size_t)(end - c->out);
}

static void put_pull(struct connection *c, struct request *s, int index)
{
    char *frame = c->out + c->ready, *signature, values[HEADER];
    int count = want.live ? LIVE_COUNT : want.size;
    char *to = frame + 8 + sprintf(frame + 8,
        "{\"code\":11,\"extFields\":{\"consumerGroup\":\"bench_consumer\",\"topic\":\"%s\",\"queueId\":"
        "\"%d\",\"queueOffset\":\"%ld\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"6\",\"commitOffset\":\"0\","
        "\"suspendTimeoutMillis\":\"15000\",\"subscription\":\"%s\",\"subVersion\":\"0\","
        "\"expressionType\":\"%s",
        want.topic, s->queue, s->offset, count, want.filter, want.type);
    to = end_fields(to, &signature);
    to += sprintf(to, ",\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
        "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}", FIRST_OPAQUE + index);
    if (signature) { /* by name: AccessKey, commitOffset, consumerGroup, expressionType, ... */
        int n = sprintf(values, "%s0bench_consumer%s%d%d%ld0%s150006%s", want.access_key, want.type,
            count, s->queue, s->offset, want.filter, want.topic);
        sign(signature, values, (size_t)n, NULL, 0);
    }
    put_word(frame, (size_t)(to - frame - 4));
    put_word(frame + 4, (size_t)(to - frame - 8));
    c->ready += (size_t)(to - frame);
}

/* Returns whether the request has more messages to pull. */
static bool has_more(struct request *s)
{
    if (want.live || s->offset + (want.once ? 1 : want.size) <= want.limit)
        return true;
    s->offset = 0;
    return !want.once;
}

static void send_request(struct connection *c, int index, uint64_t due)
{
    struct request *s = &c->requests[index];
    if (c->pulls) {
        if (!has_more(s))
            return;
        put_pull(c, s, index);
    } else {
        if (want.limit && !want.rate && sent + in_flight * want.batch * (want.oneway + 1) >= want.limit)
            return;
        uint64_t now = now_ns();
        for (int i = 0; i < want.oneway; i++)
            put_send(c, index, now, true);
        put_send(c, index, now, false);
    }
    s->sent_at = due ? due : now_ns();
    in_flight += !(want.live && c->pulls);
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

/* ---- responses */

static void fail(const char *header, size_t size)
{
    if (failures++ == 0)
        fprintf(stderr, "first failure: %.*s\n", (int)size, header);
}

static long find_number(const char *header, size_t size, const char *name)
{
    const char *at = memmem(header, size, name, strlen(name));
    return at ? atol(at + strlen(name)) : -1;
}

/* Counts the messages of a body and records the latency of those sent by this process. */
static long count_records(const char *body, size_t size)
{
    long found = 0;
    uint64_t now = want.live ? now_ns() : 0, written;
    for (size_t at = 0; at + 4 <= size; found++) {
        uint32_t word;
        memcpy(&word, body + at, 4);
        if (ntohl(word) < 4)
            return -1;
        if (want.live && want.size >= 8 && at + BODY_AT + 8 <= size) {
            memcpy(&written, body + at + BODY_AT, 8);
            record_latency(&latencies, now - written);
        }
        at += ntohl(word);
    }
    return found;
}

static void handle_pull_response(struct request *s, const char *header, size_t header_size, size_t body_size)
{
    long code = find_number(header, header_size, "\"code\":");
    long next = find_number(header, header_size, "\"nextBeginOffset\":\"");
    long count = code == 0 ? count_records(header + header_size, body_size) : 0;
    bool nothing = code == 19 || code == 20; /* PULL_NOT_FOUND, PULL_RETRY_IMMEDIATELY */
    if (next < 0 || !(nothing || count > 0)) {
        fail(header, header_size);
        return;
    }
    s->offset = next;
    answers++;
    messages += count;
}

static void handle_send_response(const char *header, size_t header_size)
{
    if (!memmem(header, header_size, "\"code\":0,", 9)) {
        fail(header, header_size);
        return;
    }
    long count = (long)want.batch * (want.oneway + 1);
    answers++;
    sent += count;
    if (!want.live)
        messages += count;
}

static void handle_response(struct connection *c, const char *frame, size_t size)
{
    uint32_t word;
    memcpy(&word, frame + 4, 4);
    size_t header_size = ntohl(word) & 0xffffff;
    const char *header = frame + 8;
    long index = find_number(header, header_size, "\"opaque\":") - FIRST_OPAQUE;
    if (index < 0 || index >= c->window) {
        fprintf(stderr, "a response without a request: %.*s\n", (int)header_size, header);
        exit(1);
    }
    struct request *s = &c->requests[index];
    if (!want.live)
        record_latency(&latencies, now_ns() - s->sent_at);
    in_flight -= !(want.live && c->pulls);
    if (c->pulls)
        handle_pull_response(s, header, header_size, size - 8 - header_size);
    else
        handle_send_response(header, header_size);
    if (want.rate && !c->pulls)
        c->idle[c->idle_count++] = (int)index;
    else
        send_request(c, (int)index, 0);
}

static void receive(struct connection *c)
{
    ssize_t n = recv(c->fd, c->in + c->have, IN - c->have, 0);
    if (n <= 0)
        die("recv");
    c->have += (size_t)n;
    size_t at = 0;
    while (c->have - at >= 8) {
        uint32_t length;
        memcpy(&length, c->in + at, 4);
        length = ntohl(length) + 4;
        if (c->have - at < length)
            break;
        handle_response(c, c->in + at, length);
        at += length;
    }
    memmove(c->in, c->in + at, c->have - at);
    c->have -= at;
    flush_out(c);
}

/* ---- the run */

static int connect_to(const char *host, int port)
{
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1)
        die("address");
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address))
        die("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static void open_connection(struct connection *c, const char *host, int number, bool pulls, int window)
{
    size_t body = want.batch > 1 ? batch_size : (size_t)want.size;
    size_t request = pulls ? HEADER + 8 : (HEADER + 8 + body) * (size_t)(want.oneway + 1);
    c->fd = connect_to(host, want.ports[number % want.port_count]);
    c->pulls = pulls;
    c->window = window;
    c->in = malloc(IN);
    c->out = malloc((size_t)window * request);
    c->requests = calloc((size_t)window, sizeof *c->requests);
    c->idle = calloc((size_t)window, sizeof *c->idle);
    while (c->idle_count < window) {
        c->idle[c->idle_count] = c->idle_count;
        c->idle_count++;
    }
}

/* Requests that share a queue start at different offsets. */
static void seek(struct connection *c, int number)
{
    long steps = want.limit / want.size;
    for (int i = 0; i < c->window; i++) {
        int nth = number * c->window + i;
        c->requests[i].queue = nth % want.queues;
        c->requests[i].offset = want.once ? 0 : nth * 7 % steps * want.size;
    }
}

static long max_offset(struct connection *c, int queue)
{
    char frame[HEADER], values[HEADER], *signature;
    char *to = frame + 8 + sprintf(frame + 8,
        "{\"code\":30,\"extFields\":{\"topic\":\"%s\",\"queueId\":\"%d", want.topic, queue);
    to = end_fields(to, &signature);
    to = put(to, ",\"flag\":0,\"language\":\"JAVA\",\"opaque\":1,"
                 "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":479}");
    if (signature)
        sign(signature, values, (size_t)sprintf(values, "%s%d%s", want.access_key, queue, want.topic), NULL, 0);
    put_word(frame, (size_t)(to - frame - 4));
    put_word(frame + 4, (size_t)(to - frame - 8));
    if (send(c->fd, frame, (size_t)(to - frame), MSG_NOSIGNAL) < 0)
        die("send");
    ssize_t got = recv(c->fd, frame, sizeof frame, 0);
    long found = got > 8 ? find_number(frame + 8, (size_t)got - 8, "\"offset\":\"") : -1;
    if (found < 0) {
        fprintf(stderr, "no maximum offset of queue %d: %.*s\n", queue, got > 8 ? (int)got - 8 : 0, frame + 8);
        exit(1);
    }
    return found;
}

static void seek_to_end(struct connection *c, int number)
{
    for (int i = 0; i < c->window; i++) {
        c->requests[i].queue = number + i * want.consumers;
        c->requests[i].offset = max_offset(c, c->requests[i].queue);
    }
}

static void start(struct connection *c)
{
    for (int i = 0; i < c->window; i++)
        send_request(c, i, 0);
    flush_out(c);
}

/* Sends the requests that are due and sets the timer for the next one. */
static void send_due(struct connection *all, int timer, uint64_t begin)
{
    static uint64_t turn;
    double step = 1e9 * want.batch / want.rate;
    uint64_t now = now_ns(), due;
    while ((due = begin + (uint64_t)((double)turn * step)) <= now) {
        struct connection *c = &all[turn++ % (uint64_t)want.connections];
        record_latency(&lateness, now_ns() - due);
        if (!c->idle_count) {
            unsent++;
            continue;
        }
        send_request(c, c->idle[--c->idle_count], due);
        flush_out(c);
    }
    struct itimerspec next = {.it_value = {.tv_sec = (time_t)(due / 1000000000u),
                                           .tv_nsec = (long)(due % 1000000000u)}};
    timerfd_settime(timer, TFD_TIMER_ABSTIME, &next, NULL);
}

static void report(double took)
{
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                 (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
    printf("{\"messages\": %ld, \"sent\": %ld, \"answers\": %ld, \"failures\": %ld, \"unsent\": %ld, "
           "\"unanswered\": %ld, \"seconds\": %.3f, \"p50_us\": %ld, \"p99_us\": %ld, \"p999_us\": %ld, "
           "\"late_p50_us\": %ld, \"late_p99_us\": %ld, \"generator_cpu_seconds\": %.3f}\n",
           messages, sent, answers, failures, unsent, in_flight, took, percentile(&latencies, 0.5),
           percentile(&latencies, 0.99), percentile(&latencies, 0.999), percentile(&lateness, 0.5),
           percentile(&lateness, 0.99), cpu);
}

static void read_ports(char *text)
{
    for (char *port = strtok(text, ","); port && want.port_count < PORTS; port = strtok(NULL, ","))
        want.ports[want.port_count++] = atoi(port);
}

static bool read_option(char *text)
{
    char *value = strchr(text, '=');
    if (!value)
        return false;
    size_t n = (size_t)(value++ - text);
    struct { const char *name; int *number; } numbers[] = {
        {"batch", &want.batch}, {"oneway", &want.oneway}, {"topics", &want.topics},
        {"consumers", &want.consumers}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strlen(numbers[i].name) == n && !strncmp(text, numbers[i].name, n))
            return *numbers[i].number = atoi(value), true;
    if (!strncmp(text, "rate=", 5))
        return want.rate = atof(value), true;
    if (!strncmp(text, "marked=", 7))
        return want.marked = atoi(value), true;
    if (!strncmp(text, "once=", 5))
        return want.once = atoi(value), true;
    if (!strncmp(text, "filter=", 7))
        return want.filter = value, true;
    if (!strncmp(text, "type=", 5))
        return want.type = value, true;
    if (!strncmp(text, "access_key=", 11))
        return want.access_key = value, true;
    if (!strncmp(text, "secret_key=", 11))
        return want.secret_key = value, true;
    return false;
}

static bool read_arguments(int argc, char **argv)
{
    want.pulls = !strcmp(argv[1], "pull");
    want.live = !strcmp(argv[1], "live");
    read_ports(argv[3]);
    want.connections = atoi(argv[4]);
    want.window = atoi(argv[5]);
    want.seconds = atof(argv[6]);
    want.topic = argv[7];
    want.queues = atoi(argv[8]);
    want.size = atoi(argv[9]);
    want.limit = atol(argv[10]);
    for (int i = 11; i < argc; i++)
        if (!read_option(argv[i]))
            return false;
    bool lengths = strlen(want.topic) + strlen(want.filter) < HEADER / 4 &&
                   (!want.access_key || strlen(want.access_key) < 65) &&
                   (!want.secret_key || strlen(want.secret_key) < 65); /* longer keys are hashed first */
    if (!lengths || !want.access_key != !want.secret_key)
        return false;
    if (want.access_key)
        prepare_signatures();
    bool pages = !want.pulls || want.limit >= want.size;
    bool shared = !want.live || (want.consumers && want.queues % want.consumers == 0);
    bool plain = want.batch == 1 || !(want.marked || want.topics);
    return want.port_count && want.queues && want.batch && pages && shared && plain;
}

/* Responses and due sends are handled in one epoll loop. */
static void run(struct connection *all, int poll, int timer)
{
    struct epoll_event events[256];
    uint64_t begin = now_ns(), end = begin + (uint64_t)(want.seconds * 1e9), expirations;
    int opened = want.connections + want.consumers;
    for (int i = 0; i < opened; i++)
        if (all[i].pulls || !want.rate)
            start(&all[i]);
    if (want.rate)
        send_due(all, timer, begin);
    while (now_ns() < end && (in_flight || want.rate)) {
        int left_ms = (int)((end - now_ns()) / 1000000) + 1;
        int n = epoll_wait(poll, events, 256, left_ms < 5000 ? left_ms : 5000);
        if (n == 0)
            break; /* the counts show that the server stopped responding */
        for (int i = 0; i < n; i++)
            if (events[i].data.u32 != TIMER)
                receive(&all[events[i].data.u32]);
            else if (read(timer, &expirations, sizeof expirations) > 0)
                send_due(all, timer, begin);
    }
    report((double)(now_ns() - begin) / 1e9);
}

static void open_all(struct connection *all, const char *host, int poll)
{
    int opened = want.connections + want.consumers;
    for (int i = 0; i < opened; i++) {
        bool consumer = i >= want.connections;
        int number = consumer ? i - want.connections : i;
        int window = consumer ? want.queues / want.consumers : want.window;
        open_connection(&all[i], host, number, consumer || want.pulls, window);
        if (consumer)
            seek_to_end(&all[i], number);
        else if (want.pulls)
            seek(&all[i], i);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)i};
        epoll_ctl(poll, EPOLL_CTL_ADD, all[i].fd, &event);
    }
}

static int keep_idle(const char *host, char *ports, int connections)
{
    char byte;
    read_ports(ports);
    for (int i = 0; i < connections; i++)
        connect_to(host, want.ports[i % want.port_count]);
    printf("%d connections\n", connections);
    fflush(stdout);
    while (read(0, &byte, 1) > 0)
        ;
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "idle"))
        return keep_idle(argv[2], argv[3], atoi(argv[4]));
    if (argc < 11 || !read_arguments(argc, argv)) {
        fprintf(stderr, "usage: brokerload send|pull|live HOST PORT[,PORT] CONNECTIONS WINDOW SECONDS"
                        " TOPIC QUEUES SIZE LIMIT [NAME=VALUE ...]; see the top of brokerload.c\n");
        return 2;
    }
    if (want.batch > 1)
        build_batch();
    int poll = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = TIMER};
    epoll_ctl(poll, EPOLL_CTL_ADD, timer, &event);
    struct connection *all = calloc((size_t)(want.connections + want.consumers), sizeof *all);
    open_all(all, argv[2], poll);
    run(all, poll, timer);
    return 0;
}
