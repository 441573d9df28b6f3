/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "config.h"

#include "runtime/train/metrics/tensorboard.h"
#include "topology/base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Field numbers of the messages. */
enum { EVENT_WALL_TIME = 1, EVENT_STEP, EVENT_VERSION };
enum { EVENT_SUMMARY = 5, EVENT_SESSION_LOG = 7 };
enum { SUMMARY_VALUE = 1 };
enum { VALUE_TAG = 1, VALUE_SIMPLE, VALUE_HISTOGRAM = 5 };
enum { VALUE_TENSOR = 8, VALUE_METADATA };
enum { HISTOGRAM_MIN = 1, HISTOGRAM_MAX, HISTOGRAM_NUM, HISTOGRAM_SUM };
enum { HISTOGRAM_SUM_SQUARES = 5, HISTOGRAM_LIMIT, HISTOGRAM_BUCKET };
enum { METADATA_PLUGIN = 1, PLUGIN_NAME = 1 };
enum { TENSOR_DTYPE = 1, TENSOR_SHAPE, TENSOR_STRING = 8 };
enum { SESSION_STATUS = 1, SESSION_START = 1 };
#define DT_STRING 7

/* Wire types of protobuf. */
enum { WIRE_VARINT, WIRE_64, WIRE_BYTES, WIRE_32 = 5 };

/* A message under construction. */
struct message {
    unsigned char *at;
    size_t size, room;
    int failed; /* memory ran out */
};

struct plait_tensorboard {
    FILE *out;
    struct message event, summary, value; /* kept between steps */
};

static void put_bytes(struct message *m, const void *bytes, size_t size)
{
    unsigned char *at = m->at;

    if (m->room - m->size < size) {
        size_t room = 2 * m->room + size;

        at = realloc(m->at, room);
        if (!at) {
            m->failed = 1;
            return;
        }
        m->at = at;
        m->room = room;
    }
    memcpy(at + m->size, bytes, size);
    m->size += size;
}

static void put_varint(struct message *m, uint64_t v)
{
    unsigned char byte;

    for (; v > 127; v >>= 7) {
        byte = v | 128;
        put_bytes(m, &byte, 1);
    }
    byte = v;
    put_bytes(m, &byte, 1);
}

static void put_key(struct message *m, int field, int wire)
{
    put_varint(m, (uint64_t)field << 3 | wire);
}

static void put_int(struct message *m, int field, int64_t v)
{
    put_key(m, field, WIRE_VARINT);
    put_varint(m, v);
}

/* Fixed-width numbers are little-endian on the wire. */
static void put_little(struct message *m, uint64_t bits, int size)
{
    unsigned char bytes[8];

    for (int i = 0; i < size; i++)
        bytes[i] = bits >> 8 * i;
    put_bytes(m, bytes, size);
}

static void put_bits(struct message *m, double v)
{
    uint64_t bits;

    memcpy(&bits, &v, sizeof(bits));
    put_little(m, bits, 8);
}

static void put_double(struct message *m, int field, double v)
{
    put_key(m, field, WIRE_64);
    put_bits(m, v);
}

/* A repeated field, packed. */
static void put_doubles(struct message *m, int field, const double *v, int n)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, 8 * (uint64_t)n);
    while (n-- > 0)
        put_bits(m, *v++);
}

static void put_float(struct message *m, int field, float v)
{
    uint32_t bits;

    memcpy(&bits, &v, sizeof(bits));
    put_key(m, field, WIRE_32);
    put_little(m, bits, 4);
}

static void put_text(struct message *m, int field, const char *text)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, strlen(text));
    put_bytes(m, text, strlen(text));
}

static void put_message(struct message *m, int field,
                        const struct message *inner)
{
    put_key(m, field, WIRE_BYTES);
    put_varint(m, inner->size);
    put_bytes(m, inner->at, inner->size);
    m->failed |= inner->failed;
}

/* CRC-32C (Castagnoli), RFC 3720 appendix B.4; masked as TFRecord does. */
static uint32_t masked_crc(const unsigned char *at, size_t size)
{
    uint32_t crc = ~0u;

    while (size--) {
        crc ^= *at++;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static void little(unsigned char *at, uint64_t v, int size)
{
    for (int i = 0; i < size; i++)
        at[i] = v >> 8 * i;
}

static int write_record(FILE *out, const struct message *m)
{
    unsigned char head[12], tail[4];

    if (m->failed) {
        errno = ENOMEM;
        return -1;
    }
    little(head, m->size, 8);
    little(head + 8, masked_crc(head, 8), 4);
    little(tail, masked_crc(m->at, m->size), 4);
    fwrite(head, 1, sizeof(head), out);
    fwrite(m->at, 1, m->size, out);
    fwrite(tail, 1, sizeof(tail), out);
    if (fflush(out) == 0 && !ferror(out))
        return 0;
    errno = errno ? errno : EIO;
    return -1;
}

static void begin_event(struct message *event, int64_t step)
{
    event->size = 0;
    put_double(event, EVENT_WALL_TIME, plait_clock_unix());
    if (step > 0)
        put_int(event, EVENT_STEP, step);
}

static int write_version(struct plait_tensorboard *tb)
{
    begin_event(&tb->event, 0);
    put_text(&tb->event, EVENT_VERSION, "brain.Event:2");
    return write_record(tb->out, &tb->event);
}

/* TensorBoard forgets what older files say of `first` and later steps. */
static int write_restart(struct plait_tensorboard *tb, int64_t first)
{
    begin_event(&tb->event, first);
    tb->value.size = 0;
    put_int(&tb->value, SESSION_STATUS, SESSION_START);
    put_message(&tb->event, EVENT_SESSION_LOG, &tb->value);
    return write_record(tb->out, &tb->event);
}

static void put_string_tensor(struct message *value, const char *text)
{
    struct message tensor = {0};

    put_int(&tensor, TENSOR_DTYPE, DT_STRING);
    put_text(&tensor, TENSOR_SHAPE, ""); /* no dimensions: a scalar */
    put_text(&tensor, TENSOR_STRING, text);
    put_message(value, VALUE_TENSOR, &tensor);
    free(tensor.at);
}

static void put_text_plugin(struct message *value)
{
    struct message plugin = {0}, metadata = {0};

    put_text(&plugin, PLUGIN_NAME, "text");
    put_message(&metadata, METADATA_PLUGIN, &plugin);
    put_message(value, VALUE_METADATA, &metadata);
    free(plugin.at);
    free(metadata.at);
}

/* As Markdown, in which TensorBoard shows texts. */
static int write_config(struct plait_tensorboard *tb, int64_t step,
                        const char *config)
{
    char *text;

    if (asprintf(&text, "```yaml\n%s\n```\n", config) < 0)
        return -1;
    begin_event(&tb->event, step);
    tb->summary.size = tb->value.size = 0;
    put_text(&tb->value, VALUE_TAG, "configuration");
    put_string_tensor(&tb->value, text);
    put_text_plugin(&tb->value);
    put_message(&tb->summary, SUMMARY_VALUE, &tb->value);
    put_message(&tb->event, EVENT_SUMMARY, &tb->summary);
    free(text);
    return write_record(tb->out, &tb->event);
}

static void put_metric(const struct plait_metric *metric, void *arg)
{
    struct plait_tensorboard *tb = arg;
    char tag[128];

    snprintf(tag, sizeof(tag), "%s%s%s", metric->name, metric->label ? "/" : "",
             metric->label ? metric->key : "");
    tb->value.size = 0;
    put_text(&tb->value, VALUE_TAG, tag);
    put_float(&tb->value, VALUE_SIMPLE, metric->value);
    put_message(&tb->summary, SUMMARY_VALUE, &tb->value);
}

int plait_tensorboard_write(struct plait_tensorboard *tb,
                            const struct plait_metrics *m)
{
    begin_event(&tb->event, m->step);
    tb->summary.size = 0;
    plait_metrics_each(m, put_metric, tb);
    put_message(&tb->event, EVENT_SUMMARY, &tb->summary);
    return write_record(tb->out, &tb->event);
}

/* The buckets up to the last that is not empty; a run of empty ones is merged
 * into one. */
static void put_buckets(struct message *m, const double *bucket)
{
    double limit[PLAIT_HISTOGRAM_BUCKETS], count[PLAIT_HISTOGRAM_BUCKETS];
    int n = 0, last = PLAIT_HISTOGRAM_BUCKETS - 1;

    while (last > 0 && bucket[last] == 0)
        last--;
    for (int i = 0; i <= last; i++) {
        if (bucket[i] == 0 && (n == 0 || bucket[i + 1] == 0))
            continue;
        limit[n] = plait_histogram_limit(i);
        count[n++] = bucket[i];
    }
    put_doubles(m, HISTOGRAM_LIMIT, limit, n);
    put_doubles(m, HISTOGRAM_BUCKET, count, n);
}

static void put_histogram(struct message *value,
                          const struct plait_histogram *h)
{
    struct message inner = {0};

    put_double(&inner, HISTOGRAM_MIN, h->min);
    put_double(&inner, HISTOGRAM_MAX, h->max);
    put_double(&inner, HISTOGRAM_NUM, h->num);
    put_double(&inner, HISTOGRAM_SUM, h->sum);
    put_double(&inner, HISTOGRAM_SUM_SQUARES, h->sum_squares);
    put_buckets(&inner, h->bucket);
    put_message(value, VALUE_HISTOGRAM, &inner);
    free(inner.at);
}

int plait_tensorboard_histograms(struct plait_tensorboard *tb, int64_t step,
                                 const struct plait_histograms *h)
{
    struct plait_histogram one;
    char tag[64];

    begin_event(&tb->event, step);
    tb->summary.size = 0;
    for (int i = 0; plait_histograms_get(h, i, &one); i++) {
        if (one.num == 0)
            continue;
        snprintf(tag, sizeof(tag), "gradients/%s", one.name);
        tb->value.size = 0;
        put_text(&tb->value, VALUE_TAG, tag);
        put_histogram(&tb->value, &one);
        put_message(&tb->summary, SUMMARY_VALUE, &tb->value);
    }
    put_message(&tb->event, EVENT_SUMMARY, &tb->summary);
    return write_record(tb->out, &tb->event);
}

/* TensorBoard reads the files of a directory by the order of their names. */
static FILE *open_file(const char *dir)
{
    char host[256] = "", *path;
    struct timespec now = plait_clock_in(CLOCK_REALTIME, 0);
    FILE *out;

    if (mkdir(dir, 0777) < 0 && errno != EEXIST)
        return NULL;
    gethostname(host, sizeof(host) - 1);
    if (asprintf(&path, "%s/events.out.tfevents.%010lld.%09ld.%s.%d", dir,
                 (long long)now.tv_sec, now.tv_nsec, host, (int)getpid()) < 0)
        return NULL;
    out = fopen(path, "wxe");
    free(path);
    return out;
}

struct plait_tensorboard *plait_tensorboard_create(const char *dir,
                                                   int64_t step,
                                                   const char *config,
                                                   struct plait_error *err)
{
    struct plait_tensorboard *tb = calloc(1, sizeof(*tb));

    if (!tb) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    tb->out = open_file(dir);
    if (!tb->out || write_version(tb) < 0 ||
        (step > 0 && write_restart(tb, step + 1) < 0) ||
        write_config(tb, step, config) < 0) {
        plait_errorf(err, "log.tensorboard: %s: %s", dir, strerror(errno));
        plait_tensorboard_destroy(tb);
        return NULL;
    }
    return tb;
}

void plait_tensorboard_destroy(struct plait_tensorboard *tb)
{
    int saved = errno;

    if (!tb)
        return;
    if (tb->out)
        fclose(tb->out);
    free(tb->event.at);
    free(tb->summary.at);
    free(tb->value.at);
    free(tb);
    errno = saved;
}
