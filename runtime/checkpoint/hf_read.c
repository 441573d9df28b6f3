/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of the parts of a config.json share. */
#include "config.h"

#include "runtime/checkpoint/hf_read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

const char *plait_hf_text(const json_t *value, char buf[80])
{
    if (!value)
        return "missing";
    memset(buf, 0, 80);
    if (json_dumpb(value, buf, 79, JSON_ENCODE_ANY) > 79)
        return json_is_object(value) ? "an object" : "too long";
    return buf;
}

int plait_hf_refuse(const struct plait_hf_read *r, const char *name,
                    const json_t *value, const char *want)
{
    char buf[80];

    errno = EINVAL;
    return plait_errorf(r->err, "%s: %s is %s; %s", r->path, name,
                        plait_hf_text(value, buf), want);
}

int plait_hf_real(const struct plait_hf_read *r, const json_t *in,
                  const char *name, double *to)
{
    const json_t *value = json_object_get(in, name);

    if (!json_is_number(value) || !(json_number_value(value) > 0))
        return plait_hf_refuse(r, name, value, "it must be a number above 0");
    *to = json_number_value(value);
    return 0;
}

int plait_hf_counts(const struct plait_hf_read *r,
                    const struct plait_hf_count *key)
{
    for (; key->name; key++) {
        int *to = (int *)((char *)r->model + key->offset);
        const json_t *value = json_object_get(r->root, key->name);

        if (key->optional && (!value || json_is_null(value)))
            continue;
        if (!json_is_integer(value) || json_integer_value(value) < 1 ||
            json_integer_value(value) > PLAIT_HF_COUNT_MOST)
            return plait_hf_refuse(r, key->name, value,
                                   "it must be a whole number of at least 1");
        *to = (int)json_integer_value(value);
    }
    return 0;
}

int plait_hf_check_only(const struct plait_hf_read *r,
                        const struct plait_hf_only *key)
{
    for (; key->name; key++) {
        const json_t *value = json_object_get(r->root, key->name);
        char buf[80], want[64];
        const char *text;

        if (!value || json_is_null(value))
            continue;
        text = plait_hf_text(value, buf);
        if (!strcmp(text, key->values[0]) ||
            (key->values[1] && !strcmp(text, key->values[1])))
            continue;
        snprintf(want, sizeof(want), "plait-train supports only %s",
                 key->values[0]);
        return plait_hf_refuse(r, key->name, value, want);
    }
    return 0;
}

int plait_hf_bool(const struct plait_hf_read *r, const char *name, bool missing,
                  bool *to)
{
    const json_t *value = json_object_get(r->root, name);

    *to = missing;
    if (!value || json_is_null(value))
        return 0;
    if (!json_is_boolean(value))
        return plait_hf_refuse(r, name, value, "it must be true or false");
    *to = json_is_true(value);
    return 0;
}
