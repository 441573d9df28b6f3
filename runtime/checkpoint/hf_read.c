/* SPDX-License-Identifier: Apache-2.0 */
/* What the readers of the parts of a config.json share. */
#include "config.h"

#include "runtime/checkpoint/hf_read.h"

#include <errno.h>
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
