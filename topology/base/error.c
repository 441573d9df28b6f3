/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "topology/base/text.h"

int plait_errorf(struct plait_error *err, const char *fmt, ...)
{
    int saved = errno;
    va_list ap;

    if (err) {
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
        plait_text_clean(err->text);
    }
    errno = saved;
    return -1;
}

int plait_error_prefix(struct plait_error *err, const char *before)
{
    struct plait_error why;

    if (!err || !err->text[0])
        return -1;
    why = *err;
    return plait_errorf(err, "%s%s", before, why.text);
}
