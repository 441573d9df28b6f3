/* SPDX-License-Identifier: Apache-2.0 */
/* The fields of a SentencePiece model, from its protocol buffer. */
#include "runtime/data/tokenizer/spm_proto.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* -- protocol buffers ----------------------------------------------------- */

struct span {
    const unsigned char *at;
    size_t size;
};

/* The ways in which a field's value is written. */
enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

struct field {
    uint64_t number;
    int wire;
    uint64_t value;    /* of a VARINT */
    struct span bytes; /* of the others */
};

static bool read_varint(struct span *s, uint64_t *value)
{
    *value = 0;
    for (unsigned shift = 0; shift < 64 && s->size > 0; shift += 7) {
        unsigned char byte = *s->at;

        s->at++;
        s->size--;
        *value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return true;
    }
    return false;
}

/* Takes the next field off a message that is not at its end. */
static bool read_field(struct span *s, struct field *f)
{
    uint64_t key, size = 0;

    if (!read_varint(s, &key))
        return false;
    f->number = key >> 3;
    f->wire = (int)(key & 7);
    if (f->wire == VARINT)
        return read_varint(s, &f->value);
    if (f->wire == BYTES && !read_varint(s, &size))
        return false;
    if (f->wire == FIXED64 || f->wire == FIXED32)
        size = f->wire == FIXED64 ? 8 : 4;
    else if (f->wire != BYTES)
        return false;
    if (size > s->size)
        return false;
    f->bytes = (struct span){s->at, (size_t)size};
    s->at += size;
    s->size -= (size_t)size;
    return true;
}

/* -- the messages of a model ---------------------------------------------- */

static bool read_piece(struct span s, struct plait_spm_piece *piece)
{
    struct field f;

    *piece = (struct plait_spm_piece){.text = "", .type = PLAIT_SPM_NORMAL};
    while (s.size > 0) {
        if (!read_field(&s, &f))
            return false;
        if (f.number == 1 && f.wire == BYTES) {
            piece->text = (const char *)f.bytes.at;
            piece->size = f.bytes.size;
        } else if (f.number == 2 && f.wire == FIXED32) {
            memcpy(&piece->score, f.bytes.at, sizeof(piece->score));
        } else if (f.number == 3 && f.wire == VARINT &&
                   f.value >= PLAIT_SPM_NORMAL && f.value <= PLAIT_SPM_BYTE) {
            piece->type = (int)f.value;
        } else {
            return false;
        }
    }
    return true;
}

/* Of the settings of training only those that say how to encode are read. */
static bool read_trainer(struct span s, struct plait_spm_proto *p)
{
    enum { MODEL_TYPE = 3, BLANK_AS_SUFFIX = 24, BYTE_FALLBACK = 35 };
    enum { TYPE_BPE = 2 };
    struct field f;

    while (s.size > 0) {
        if (!read_field(&s, &f))
            return false;
        if (f.wire != VARINT)
            continue;
        if (f.number == MODEL_TYPE)
            p->is_bpe = f.value == TYPE_BPE;
        if (f.number == BYTE_FALLBACK)
            p->falls_back = f.value != 0;
        if (f.number == BLANK_AS_SUFFIX)
            p->normalizes |= f.value != 0;
    }
    return true;
}

/* A field that is not known here may change the text. */
static bool read_normalizer(struct span s, struct plait_spm_proto *p)
{
    enum { NAME = 1, CHARACTERS, PREPEND, REMOVE_BLANKS, ESCAPE_BLANKS, RULES };
    bool removes = true, escapes = true;
    struct field f;

    while (s.size > 0) {
        if (!read_field(&s, &f))
            return false;
        if (f.number == PREPEND && f.wire == VARINT)
            p->prepends = f.value != 0;
        else if (f.number == REMOVE_BLANKS && f.wire == VARINT)
            removes = f.value != 0;
        else if (f.number == ESCAPE_BLANKS && f.wire == VARINT)
            escapes = f.value != 0;
        else if (f.wire != BYTES || (f.number != NAME && f.bytes.size > 0))
            p->normalizes = true;
    }
    p->normalizes |= removes || !escapes;
    return true;
}

static bool count_pieces(struct span s, size_t *n)
{
    struct field f;

    for (*n = 0; s.size > 0; *n += f.number == 1)
        if (!read_field(&s, &f))
            return false;
    return true;
}

static bool read_model(struct span s, struct plait_spm_proto *p)
{
    enum { PIECE = 1, TRAINER, NORMALIZER };
    struct span normalizer = {NULL, 0};
    struct field f;

    p->prepends = true;
    while (s.size > 0) {
        if (!read_field(&s, &f))
            return false;
        if (f.number > NORMALIZER || f.number < PIECE)
            continue;
        if (f.wire != BYTES)
            return false;
        if (f.number == PIECE && !read_piece(f.bytes, &p->pieces[p->npieces++]))
            return false;
        if (f.number == TRAINER && !read_trainer(f.bytes, p))
            return false;
        if (f.number == NORMALIZER)
            normalizer = f.bytes;
    }
    return read_normalizer(normalizer, p);
}

int plait_spm_proto_read(const char *bytes, size_t size,
                         struct plait_spm_proto *p)
{
    const struct span all = {(const unsigned char *)bytes, size};
    size_t n;

    memset(p, 0, sizeof(*p));
    errno = EINVAL;
    if (!count_pieces(all, &n))
        return -1;
    p->pieces = calloc(n + 1, sizeof(*p->pieces));
    if (!p->pieces)
        return -1;
    if (read_model(all, p))
        return 0;
    plait_spm_proto_clear(p);
    errno = EINVAL;
    return -1;
}

void plait_spm_proto_clear(struct plait_spm_proto *p)
{
    free(p->pieces);
    memset(p, 0, sizeof(*p));
}
