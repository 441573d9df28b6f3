/* SPDX-License-Identifier: Apache-2.0 */
#ifndef PLAIT_KERNELS_PRODUCTS_H
#define PLAIT_KERNELS_PRODUCTS_H

#include "kernels/kernels.h"

/* Which of its algorithms a device's library takes for a matrix product. By
 * itself each product gets the library's first choice, so that nothing depends
 * on a clock. Another is taken where the caller says so, who hands all ranks
 * the same choices: what several ranks compute alike (which expert a token goes
 * to) must have the same bits.
 *
 * A product is a line of text: the kind of device with the versions of its
 * driver and library, types, sizes, what else counts. A choice is a product's
 * line, PLAIT_CHOICE_MARK and the algorithm in hexadecimal. Lines end with a
 * newline. */
#define PLAIT_CHOICE_MARK " : "
enum { PLAIT_CHOICE_MOST = 1024 }; /* bytes of one, with the 0 behind it */

struct plait_product_ops {
    /* The products that were computed since the device was created, or since
     * it was asked last, of which there is no choice: malloc'ed lines, in the
     * order of their first use, 128 at most. NULL with ENOMEM. */
    char *(*wanted)(struct plait_device *dev);
    /* Times what the library offers for the product, on memory of its own,
     * which is given back: a malloc'ed choice, or NULL where it has no
     * algorithm or there is no memory left. Waits for q. */
    char *(*search)(struct plait_queue *q, const char *product);
    /* Take these choices from here on, instead of former ones of the same
     * products; those of other kinds of devices are passed over. How many
     * lines are damaged, or -1 with ENOMEM. Not while work is recorded. */
    int (*choose)(struct plait_device *dev, const char *choices);
};

#endif
