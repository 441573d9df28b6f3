/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_PRODUCTS_H
#define PLAIT_KERNELS_PRODUCTS_H

#include "kernels/kernels.h"

/* Which algorithm of a device's library computes a matrix product. By default
 * each product takes the library's first choice, so that results do not depend
 * on measured times. The caller may set other choices and must give all ranks
 * the same ones: values that several ranks compute redundantly (which expert a
 * token goes to) must have the same bits.
 *
 * A product is a line of text: the kind of device with the versions of its
 * driver and library, types, sizes and whatever else matters. A choice is a
 * product's line, PLAIT_CHOICE_MARK and the algorithm in hexadecimal. Lines end
 * with a newline. */
#define PLAIT_CHOICE_MARK " : "
enum { PLAIT_CHOICE_MOST = 1024 }; /* bytes of one, with the final 0 */

struct plait_product_ops {
    /* The products computed since device_create() or since the last call for
     * which no choice is set: malloc'ed lines in the order of first use, 128 at
     * most. NULL with ENOMEM. */
    char *(*wanted)(struct plait_device *dev);
    /* Times the library's algorithms for the product, on temporary memory: a
     * malloc'ed choice, or NULL if there is no algorithm or no memory left.
     * Waits for q. */
    char *(*search)(struct plait_queue *q, const char *product);
    /* Uses these choices from now on, instead of earlier ones for the same
     * products; those for other kinds of devices are ignored. Returns the
     * number of damaged lines, or -1 with ENOMEM. Not while work is
     * recorded. */
    int (*choose)(struct plait_device *dev, const char *choices);
    /* Products that are queued from now on leave `change` more processors to
     * transfers that run beside them, those of the forward `forward` more;
     * negative: fewer. The forward has a number of its own for transfers that
     * come to it each time: a layer that is computed again for its backward,
     * beside others, should take the same algorithms, and have the same
     * bits. */
    void (*leave_room)(struct plait_device *dev, int change, int forward);
};

#endif
