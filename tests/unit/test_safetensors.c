/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/tensor_slice.h"
#include "tap.h"

/* Pieces of tensors, and the headers of the files that hold them. */

/* Any byte of a header may be wrong: it is parsed or refused, and never read
 * out of bounds (which the sanitizers find). */
static void corrupt_heads(void)
{
    struct plait_tensor_slice slice = {"a.b", {6, 4}, {2, 0}, {3, 4}, 1, 7};
    struct plait_stored *stored = NULL;
    struct plait_error err;
    unsigned char *head, *file;
    size_t n, i;
    int count, change, parsed = 0, refused = 0, other = 0;

    head = plait_safetensors_encode(&slice, 1, &n);
    file = calloc(1, n + 28);
    memcpy(file, head, n);
    ok(plait_safetensors_parse("f", file, n + 28, &stored, &count, &err) == 0 &&
           count == 1 && !memcmp(&stored->slice, &slice, sizeof(slice)) &&
           stored->offset == n,
       "a head is read back");
    free(stored);
    for (i = 0; i < n; i++) {
        for (change = 1; change < 256; change++) {
            file[i] ^= (unsigned char)change;
            if (plait_safetensors_parse("f", file, n + 28, &stored, &count,
                                        &err) == 0) {
                parsed++;
                free(stored);
            } else {
                refused++;
                other += errno != EINVAL;
            }
            file[i] ^= (unsigned char)change;
        }
    }
    for (i = 0; i < n + 28; i++)
        if (plait_safetensors_parse("f", file, i, &stored, &count, &err) == 0)
            break;
    ok(refused > parsed && i == n + 28,
       "%d corrupt heads refused, %d still valid, no truncated one is", refused,
       parsed);
    ok(other == 0, "errno says of each that the file is damaged");
    free(head);
    free(file);
}

static void check_slices(void)
{
    /* A 5 x 6 tensor; columns 2 .. 4 of rows 1 .. 3, elements 1 .. 7 of
     * them, into rows 2 .. 5 (one of them padding), elements 3 on. */
    struct plait_tensor_slice from = {"t", {5, 6}, {1, 2}, {3, 3}, 1, 7};
    struct plait_tensor_slice to = {"t", {5, 6}, {2, 0}, {4, 6}, 3, 20};
    float a[7], b[20], sum = 0;
    int i;

    for (i = 0; i < 7; i++)
        a[i] = (float)(1 << i);
    memset(b, 0, sizeof(b));
    ok(plait_tensor_slice_inside(&from) == 7 &&
           plait_tensor_slice_inside(&to) == 15,
       "elements that are no padding");
    /* from holds (1,3) (1,4) (2,2) (2,3) (2,4) (3,2) (3,3). */
    ok(plait_tensor_slice_copy(&to, b, &from, a) == 4, "what two slices share");
    for (i = 0; i < 20; i++)
        sum += b[i];
    ok(b[0] == a[3] && b[1] == a[4] && b[5] == a[5] && b[6] == a[6] &&
           sum == a[3] + a[4] + a[5] + a[6],
       "each element in its place");
}

int main(void)
{
    check_slices();
    corrupt_heads();
    return done_testing();
}
