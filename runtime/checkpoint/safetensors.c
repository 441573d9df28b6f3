/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/checkpoint/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The format's own limit on the JSON. */
#define HEAD_MOST 100000000

static json_t *offset_pair(uint64_t a, uint64_t b)
{
    return json_pack("[I,I]", (json_int_t)a, (json_int_t)b);
}

/* A run that covers its whole box is stored with the box's shape. */
static json_t *stored_shape(const struct plait_tensor_slice *p)
{
    if (p->count != p->box[0] * p->box[1] || p->box[0] == 1)
        return json_pack("[I]", (json_int_t)p->count);
    return offset_pair(p->box[0], p->box[1]);
}

static json_t *build_head(const struct plait_tensor_slice *slices, int n)
{
    json_t *head = json_object(), *where = json_object();
    uint64_t at = 0, end;
    char *text;
    int bad = !head || !where;

    for (int i = 0; i < n && !bad; i++) {
        const struct plait_tensor_slice *p = &slices[i];

        end = at + p->count * sizeof(float);
        bad |= json_object_set_new(
            head, p->name,
            json_pack("{s:s,s:o,s:o}", "dtype", "F32", "shape", stored_shape(p),
                      "data_offsets", offset_pair(at, end)));
        bad |= json_object_set_new(
            where, p->name,
            json_pack("{s:o,s:o,s:o,s:o}", "shape",
                      offset_pair(p->shape[0], p->shape[1]), "begin",
                      offset_pair(p->begin[0], p->begin[1]), "box",
                      offset_pair(p->box[0], p->box[1]), "run",
                      offset_pair(p->first, p->count)));
        at = end;
    }
    text = bad ? NULL : json_dumps(where, JSON_COMPACT);
    bad |= !text || json_object_set_new(head, "__metadata__",
                                        json_pack("{s:s,s:s}", "format",
                                                  "plait", "plait", text));
    free(text);
    json_decref(where);
    if (!bad)
        return head;
    json_decref(head);
    return NULL;
}

unsigned char *plait_safetensors_wrap(const json_t *head, size_t *size)
{
    char *text = head ? json_dumps(head, JSON_COMPACT) : NULL;
    unsigned char *out = NULL;
    size_t length, padded;
    uint64_t little;

    if (!text)
        goto done;
    length = strlen(text);
    padded = (length + 7) / 8 * 8;
    out = malloc(8 + padded);
    if (!out)
        goto done;
    little = htole64(padded);
    memcpy(out, &little, 8);
    memcpy(out + 8, text, length);
    memset(out + 8 + length, ' ', padded - length);
    *size = 8 + padded;
done:
    free(text);
    if (!out)
        errno = ENOMEM;
    return out;
}

unsigned char *plait_safetensors_encode(const struct plait_tensor_slice *slices,
                                        int n, size_t *size)
{
    json_t *head = build_head(slices, n);
    unsigned char *out = plait_safetensors_wrap(head, size);

    json_decref(head);
    return out;
}

static int get_numbers(const json_t *list, uint64_t *to, size_t n)
{
    json_int_t value;

    if (!json_is_array(list) || json_array_size(list) != n)
        return -1;
    for (size_t i = 0; i < n; i++) {
        if (!json_is_integer(json_array_get(list, i)))
            return -1;
        value = json_integer_value(json_array_get(list, i));
        if (value < 0 || value > PLAIT_SAFETENSORS_MOST)
            return -1;
        to[i] = (uint64_t)value;
    }
    return 0;
}

static bool product_fits(uint64_t a, uint64_t b, uint64_t *product)
{
    return !__builtin_mul_overflow(a, b, product) &&
           *product <= PLAIT_SAFETENSORS_MOST;
}

/* The slice's place: as "plait" says, or else the whole tensor. */
static int get_place(const json_t *entry, const json_t *place,
                     struct plait_tensor_slice *p)
{
    const json_t *shape = json_object_get(entry, "shape");
    uint64_t stored[2] = {1, 1}, run[2], elements, area;
    size_t ndim = json_array_size(shape);

    if (ndim > 2 || get_numbers(shape, stored + 2 - ndim, ndim) < 0 ||
        !product_fits(stored[0], stored[1], &elements))
        return -1;
    if (!place) {
        memcpy(p->shape, stored, sizeof(stored));
        memcpy(p->box, stored, sizeof(stored));
        p->count = elements;
        return 0;
    }
    if (get_numbers(json_object_get(place, "shape"), p->shape, 2) < 0 ||
        get_numbers(json_object_get(place, "begin"), p->begin, 2) < 0 ||
        get_numbers(json_object_get(place, "box"), p->box, 2) < 0 ||
        get_numbers(json_object_get(place, "run"), run, 2) < 0)
        return -1;
    p->first = run[0];
    p->count = run[1];
    if (!product_fits(p->box[0], p->box[1], &area) || area == 0 ||
        p->first + p->count > area || p->count != elements)
        return -1;
    return 0;
}

struct parse {
    const char *name;
    size_t data, size; /* where the data begin and end in the file */
    json_t *places;
    struct plait_stored *out;
    int n;
    struct plait_error *err;
};

static int parse_tensor(struct parse *parse, const char *key,
                        const json_t *entry)
{
    struct plait_stored *stored = &parse->out[parse->n];
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    uint64_t span[2];

    errno = EINVAL;
    if (strlen(key) >= sizeof(stored->slice.name))
        return plait_errorf(parse->err,
                            "%s: tensor name '%.40s...' is too "
                            "long",
                            parse->name, key);
    if (!dtype || strcmp(dtype, "F32") != 0)
        return plait_errorf(parse->err, "%s: tensor %s is %s, not F32",
                            parse->name, key, dtype ? dtype : "of no dtype");
    snprintf(stored->slice.name, sizeof(stored->slice.name), "%s", key);
    if (get_place(entry, json_object_get(parse->places, key), &stored->slice) <
            0 ||
        get_numbers(json_object_get(entry, "data_offsets"), span, 2) < 0 ||
        span[1] < span[0] || span[1] > parse->size - parse->data ||
        span[0] % sizeof(float) ||
        span[1] - span[0] != stored->slice.count * sizeof(float))
        return plait_errorf(parse->err,
                            "%s: corrupt: the shape or offset of tensor %s "
                            "does not match its data",
                            parse->name, key);
    stored->offset = parse->data + span[0];
    parse->n++;
    return 0;
}

/* The object in the metadata's text "plait", or an empty one. */
static json_t *load_places(const json_t *head)
{
    const json_t *meta = json_object_get(head, "__metadata__");
    const char *text = json_string_value(json_object_get(meta, "plait"));
    json_t *places;

    if (!text)
        return json_object();
    places = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(places))
        return places;
    json_decref(places);
    return NULL;
}

json_t *plait_safetensors_head(const char *name, const unsigned char *file,
                               size_t size, size_t *data,
                               struct plait_error *err)
{
    json_error_t why;
    uint64_t length;
    json_t *head;

    errno = EINVAL;
    if (size < 8) {
        plait_errorf(err,
                     "%s: truncated: %zu bytes are too few for a "
                     "safetensors file",
                     name, size);
        return NULL;
    }
    memcpy(&length, file, 8);
    length = le64toh(length);
    if (length > size - 8 || length > HEAD_MOST) {
        plait_errorf(err,
                     "%s: truncated, or not a safetensors file: a header of "
                     "%llu bytes in a file of %zu",
                     name, (unsigned long long)length, size);
        return NULL;
    }
    head = json_loadb((const char *)file + 8, (size_t)length,
                      JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(head)) {
        plait_errorf(err, "%s: corrupt header: %.200s", name,
                     head ? "not a JSON object" : why.text);
        json_decref(head);
        errno = EINVAL; /* jansson sets it to 0 where it reads a number */
        return NULL;
    }
    *data = 8 + (size_t)length;
    return head;
}

int plait_safetensors_parse(const char *name, const unsigned char *file,
                            size_t size, struct plait_stored **stored,
                            int *nstored, struct plait_error *err)
{
    struct parse parse = {.name = name, .size = size, .err = err};
    json_t *head = plait_safetensors_head(name, file, size, &parse.data, err),
           *entry;
    const char *key;
    int rc = -1;

    if (!head)
        return -1;
    parse.places = load_places(head);
    if (!parse.places) {
        plait_errorf(err, "%s: corrupt header: its metadata are not JSON",
                     name);
        goto done;
    }
    parse.out = calloc(json_object_size(head) + 1, sizeof(*parse.out));
    if (!parse.out) {
        plait_errorf(err, "%s: out of memory", name);
        goto done;
    }
    json_object_foreach(
        head, key, entry) if (strcmp(key, "__metadata__") != 0 &&
                              parse_tensor(&parse, key, entry) < 0) goto done;
    *stored = parse.out;
    *nstored = parse.n;
    parse.out = NULL;
    rc = 0;
done:
    free(parse.out);
    json_decref(parse.places);
    json_decref(head);
    if (rc < 0 && errno != ENOMEM)
        errno = EINVAL; /* jansson may have changed it */
    return rc;
}
