/* SPDX-License-Identifier: Apache-2.0 */
/* Rank orders as text: which axis varies fastest. */
#include <errno.h>
#include <string.h>

#include "topology/layout/layout.h"

static int axis_find(const char *name, size_t length)
{
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (strlen(plait_axis_names[i]) == length &&
            strncmp(plait_axis_names[i], name, length) == 0)
            return i;
    return -1;
}

/* Reads axes of which none is there twice. Returns how many there are; -1: the
 * text is wrong. */
static int parse_axes(const char *text, enum plait_axis order[PLAIT_NAXES],
                      unsigned *seen)
{
    const char *p = text;
    int n = 0;

    *seen = 0;
    for (;; p++) {
        size_t length = strcspn(p, "-");
        int axis = axis_find(p, length);

        if (axis < 0 || *seen & 1u << axis)
            return -1;
        *seen |= 1u << axis;
        order[n++] = (enum plait_axis)axis;
        p += length;
        if (!*p)
            return n;
    }
}

int plait_layout_parse_order(const char *text,
                             enum plait_axis order[PLAIT_NAXES],
                             struct plait_error *err)
{
    enum plait_axis found[PLAIT_NAXES];
    unsigned seen;

    if (parse_axes(text, found, &seen) == PLAIT_NAXES) {
        memcpy(order, found, sizeof(found));
        return 0;
    }
    errno = EINVAL;
    return plait_errorf(err,
                        "rank order \"%.40s\" must have each of tp, cp, ep, dp "
                        "and pp once, as in tp-cp-ep-dp-pp",
                        text);
}

int plait_layout_parse_rank_order(const char *text, struct plait_layout *layout,
                                  int *order_free, struct plait_error *err)
{
    int is_auto = strcmp(text, "auto") == 0, n = 0;
    enum plait_axis found[PLAIT_NAXES];
    unsigned seen = 0;

    if (!is_auto && (n = parse_axes(text, found, &seen)) < 0) {
        errno = EINVAL;
        return plait_errorf(err,
                            "rank order \"%.40s\" must have each of tp, cp, "
                            "ep, dp and pp once, as in tp-cp-ep-dp-pp; those "
                            "of size 1 may be left out",
                            text);
    }
    layout->unnamed = is_auto ? 0 : ~seen & ((1u << PLAIT_NAXES) - 1);
    for (int i = 0; i < PLAIT_NAXES; i++)
        if (!(seen & 1u << i))
            found[n++] = (enum plait_axis)i;
    memcpy(layout->order, found, sizeof(found));
    *order_free = is_auto;
    return 0;
}

void plait_layout_format_order(const struct plait_layout *layout, char *buf)
{
    for (int i = 0; i < PLAIT_NAXES; i++) {
        memcpy(buf + 3 * i, plait_axis_names[layout->order[i]], 2);
        buf[3 * i + 2] = '-';
    }
    buf[3 * PLAIT_NAXES - 1] = '\0';
}
