/* SPDX-License-Identifier: Apache-2.0 */
#include "topology/base/nearest.h"

#include <string.h>

/* Levenshtein's distance of two short words. */
static int distance(const char *a, const char *b)
{
    int row[64], diagonal, above;
    int n = (int)strlen(b);

    if (n >= 64)
        return n;
    for (int j = 0; j <= n; j++)
        row[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= n; j++) {
            above = row[j];
            row[j] = diagonal + (a[i - 1] != b[j - 1]);
            if (above + 1 < row[j])
                row[j] = above + 1;
            if (row[j - 1] + 1 < row[j])
                row[j] = row[j - 1] + 1;
            diagonal = above;
        }
    }
    return row[n];
}

int plait_nearest(const char *word, const char *const *names, int n)
{
    int best = 4, nearest = -1;

    for (int i = 0; i < n; i++) {
        int d = distance(word, names[i]);
        int longer =
            (int)strlen(strlen(word) > strlen(names[i]) ? word : names[i]);

        /* Of words of three letters, half would be any word. */
        if (d < best && 2 * d <= longer) {
            best = d;
            nearest = i;
        }
    }
    return nearest;
}
