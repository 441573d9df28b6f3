/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "runtime/data/prep/text_source.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/data/prep/unpack.h"

/* The least size of a part, unless the text ends; a part grows until there is a
 * place where it can be cut. */
enum { PART = 1 << 18 };
/* How far before the last twentieth a line break is searched for. */
enum { SEARCH = 1 << 20 };

struct plait_text_source {
    const struct plait_text_list *list;
    const struct plait_tokenizer *tokenizer;
    struct plait_text_position at;
    struct plait_unpack *file; /* NULL: not open yet */
    int64_t before;            /* bytes of the files that are done */
    int64_t start;             /* behind a byte order mark, else 0 */
    int64_t size, split; /* of a text: its bytes, and where validation begins */
    struct plait_buffer rest; /* read, but not yet in a part */
    bool ended;               /* only `rest` is left of the file */
};

struct plait_text_source *
plait_text_source_create(const struct plait_text_list *list,
                         const struct plait_tokenizer *tokenizer,
                         struct plait_error *err)
{
    struct plait_text_source *s = calloc(1, sizeof(*s));

    if (!s) {
        plait_errorf(err, "out of memory");
        return NULL;
    }
    s->list = list;
    s->tokenizer = tokenizer;
    return s;
}

void plait_text_source_destroy(struct plait_text_source *s)
{
    int saved = errno;

    if (!s)
        return;
    plait_unpack_close(s->file);
    free(s->rest.data);
    free(s);
    errno = saved;
}

int64_t plait_text_source_offset(const struct plait_text_source *s)
{
    return s->before + (s->file ? plait_unpack_offset(s->file) : 0);
}

/* -- where validation begins ---------------------------------------------- */

/* The size of a text once it is unpacked. */
static int64_t measure_text(const char *path, struct plait_error *err)
{
    struct plait_unpack *u = plait_unpack_open(path, err);
    int64_t size = u ? plait_unpack_size(u) : -1, n = 1;
    char *waste;

    if (!u || size >= 0) {
        plait_unpack_close(u);
        return size;
    }
    waste = malloc(PART);
    if (!waste)
        n = plait_errorf(err, "%s: out of memory", path);
    for (size = 0; n > 0; size += n)
        if ((n = plait_unpack_read(u, waste, PART, err)) < 0)
            break;
    free(waste);
    plait_unpack_close(u);
    return n < 0 ? -1 : size;
}

/* The position after the last line break of `text`, else before its last
 * character, which may be cut. */
static int64_t last_line(const char *text, int64_t size)
{
    const char *line = memrchr(text, '\n', (size_t)size);
    int64_t at = size;

    if (line)
        return line - text + 1;
    for (int i = 0; i < 3 && at > 0 && (text[at - 1] & 0xc0) == 0x80; i++)
        at--;
    if (at > 0 && (unsigned char)text[at - 1] >= 0xc0)
        at--;
    return at;
}

/* The start of the last twentieth: after a line break, which is searched for in
 * the MiB before it, but not in the first half of the text before it. */
static int64_t find_split(const char *path, int64_t start, int64_t size,
                          struct plait_error *err)
{
    int64_t at = size - (size - start) / PLAIT_TEXT_VAL_EACH;
    int64_t from = start + (at - start) / 2, n = -1;
    struct plait_unpack *u = plait_unpack_open(path, err);
    char *text = NULL;

    if (at == size) {
        plait_unpack_close(u);
        return u ? size : -1;
    }
    if (at - from > SEARCH)
        from = at - SEARCH;
    if (u && !(text = malloc((size_t)(at - from) + 1)))
        plait_errorf(err, "%s: out of memory", path);
    if (text && (from == 0 || plait_unpack_skip(u, from, err) == 0))
        n = plait_unpack_read(u, text, (size_t)(at - from), err);
    if (n >= 0)
        n = last_line(text, n);
    plait_unpack_close(u);
    free(text);
    return n < 0 ? -1 : from + n;
}

static int measure_split(struct plait_text_source *s, const char *path,
                         struct plait_error *err)
{
    s->size = measure_text(path, err);
    s->split = s->size < 0 ? -1 : find_split(path, s->start, s->size, err);
    return s->split < 0 ? -1 : 0;
}

/* -- one file after the other --------------------------------------------- */

/* A byte order mark, with which some editors begin a file, is no text. What was
 * read to see whether there is one is the first of the file's rest. */
static int skip_mark(struct plait_text_source *s, struct plait_error *err)
{
    char first[3];
    int64_t n = plait_unpack_read(s->file, first, sizeof(first), err);

    if (n < 0)
        return -1;
    s->start = n == 3 && !memcmp(first, "\xef\xbb\xbf", 3) ? 3 : 0;
    if (s->start == 0 && plait_buffer_add(&s->rest, first, (size_t)n) < 0)
        return plait_errorf(err, "out of memory");
    return 0;
}

static int open_file(struct plait_text_source *s, struct plait_error *err)
{
    const struct plait_text_file *f = &s->list->file[s->at.file];

    s->rest.size = 0;
    s->ended = false;
    s->file = plait_unpack_open(f->path, err);
    if (!s->file || skip_mark(s, err) < 0 ||
        (!f->lines && measure_split(s, f->path, err) < 0)) {
        plait_unpack_close(s->file);
        s->file = NULL;
        return -1;
    }
    if (s->at.at == 0)
        s->at.at = s->start;
    return 0;
}

static void next_file(struct plait_text_source *s)
{
    plait_unpack_close(s->file);
    s->file = NULL;
    s->before += s->list->file[s->at.file].size;
    s->at.file++;
    s->at.at = s->at.lines = 0;
}

int plait_text_source_seek(struct plait_text_source *s,
                           const struct plait_text_position *to,
                           struct plait_error *err)
{
    errno = EINVAL;
    if (to->file < 0 || to->at < 0 ||
        to->file >= (int64_t)s->list->count + (to->at == 0))
        return plait_errorf(err, "no such place in the texts");
    s->at = *to;
    s->before = 0;
    for (int64_t i = 0; i < to->file; i++)
        s->before += s->list->file[i].size;
    if (to->at == 0)
        return 0;
    if (open_file(s, err) < 0)
        return -1;
    s->rest.size = 0;
    return plait_unpack_skip(s->file, to->at, err);
}

/* Fill the part up to `want` bytes, if the file has them: from the rest, then
 * from the file. */
static int fill_part(struct plait_text_source *s, struct plait_buffer *text,
                     size_t want, struct plait_error *err)
{
    size_t n = s->rest.size;
    int64_t got;

    if (plait_buffer_reserve(text, want > text->size ? want - text->size : 0) <
            0 ||
        plait_buffer_add(text, s->rest.data, n) < 0)
        return plait_errorf(err, "out of memory");
    s->rest.size = 0;
    if (s->ended || text->size >= want)
        return 0;
    got = plait_unpack_read(s->file, text->data + text->size, want - text->size,
                            err);
    if (got < 0)
        return -1;
    text->size += (size_t)got;
    s->ended = text->size < want;
    return 0;
}

/* Keep n bytes in the part, and the others for the next one. */
static int give_back(struct plait_text_source *s, struct plait_buffer *text,
                     size_t n, struct plait_error *err)
{
    if (plait_buffer_add(&s->rest, text->data + n, text->size - n) < 0)
        return plait_errorf(err, "out of memory");
    text->size = n;
    return 0;
}

static void count_lines(struct plait_text_source *s, const char *text,
                        size_t size)
{
    const char *end = text + size, *line;

    for (; text < end; text = line + 1) {
        line = memchr(text, '\n', (size_t)(end - text));
        if (!line)
            line = end;
        s->at.lines++;
        while (text < line && strchr(" \t\r\v\f", *text) && *text)
            text++;
        s->at.documents += text < line;
    }
}

/* How many bytes go into this part; 0: more must be read. `left`: the bytes
 * left of the set, -1 for JSON lines. */
static size_t part_end(const struct plait_text_source *s,
                       const struct plait_text_part *part, int64_t left)
{
    const struct plait_buffer *text = &part->text;
    const char *line;

    if (left >= 0 && (int64_t)text->size >= left)
        return (size_t)left;
    if (s->ended)
        return text->size;
    if (!part->lines)
        return plait_tokenizer_cut(s->tokenizer, text->data, text->size);
    line = memrchr(text->data, '\n', text->size);
    return line ? (size_t)(line - text->data) + 1 : 0;
}

/* Describe the next part; returns the bytes left of its set, -1 for JSON
 * lines. */
static int64_t begin_part(const struct plait_text_source *s,
                          struct plait_text_part *part)
{
    const struct plait_text_file *f = &s->list->file[s->at.file];
    bool val = s->at.at >= s->split;

    part->path = f->path;
    part->lines = f->lines;
    part->text.size = 0;
    part->begin = s->at;
    part->set = !f->lines && val ? PLAIT_TEXT_VAL : PLAIT_TEXT_TRAIN;
    part->continued = s->at.at > s->start && s->at.at != s->split;
    return f->lines ? -1 : (val ? s->size : s->split) - s->at.at;
}

static int read_part(struct plait_text_source *s, struct plait_text_part *part,
                     struct plait_error *err)
{
    int64_t left = begin_part(s, part);
    size_t want = PART, n;

    do {
        if (fill_part(s, &part->text, want, err) < 0)
            return -1;
        n = part_end(s, part, left);
        want = part->text.size * 2;
    } while (n == 0 && !s->ended);
    errno = ESTALE;
    if (s->ended && (int64_t)n < left && part->text.size == n)
        return plait_errorf(err, "%s: became shorter while it was read",
                            part->path);
    if (give_back(s, &part->text, n, err) < 0)
        return -1;
    s->at.at += (int64_t)n;
    if (part->lines)
        count_lines(s, part->text.data, n);
    part->ends = (int64_t)n == left;
    part->end = s->at;
    return 0;
}

int plait_text_source_next(struct plait_text_source *s,
                           struct plait_text_part *part,
                           struct plait_error *err)
{
    while (s->at.file < (int64_t)s->list->count) {
        if (!s->file && open_file(s, err) < 0)
            return -1;
        if (s->list->file[s->at.file].lines ? !s->ended || s->rest.size > 0
                                            : s->at.at < s->size) {
            if (read_part(s, part, err) < 0)
                return -1;
            if (part->text.size > 0)
                return 1;
        }
        next_file(s);
    }
    return 0;
}
