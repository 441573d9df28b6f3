/* SPDX-License-Identifier: Apache-2.0 */
/* Records which of cuBLASLt's algorithms products take, for search.sh.
 * EMULATED_CHOICES=FILE: FILE.RANK gets a line for each product with the number
 * of the algorithm that computed it last. EMULATED_FAST=N: by the times of
 * events, every algorithm but number N takes a second longer. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "blaslt.h"
#include "runtime.h"

enum { PRODUCTS = 1000, LINE = 120 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    char line[LINE];
    int algorithm;
} seen[PRODUCTS];
static int nseen;
static double added;

double emu_added_time(void)
{
    double seconds;

    pthread_mutex_lock(&mutex);
    seconds = added;
    pthread_mutex_unlock(&mutex);
    return seconds;
}

static void note(const char *line, int algorithm)
{
    int i = 0;

    while (i < nseen && strcmp(seen[i].line, line) != 0)
        i++;
    if (i == PRODUCTS)
        abort();
    if (i == nseen)
        memcpy(seen[nseen++].line, line, LINE);
    seen[i].algorithm = algorithm;
}

void emu_chosen(const struct emu_product *how, const struct emu_matrix *a,
                const struct emu_matrix *d, int add, int algorithm)
{
    const char *fast = getenv("EMULATED_FAST");
    char line[LINE];

    snprintf(line, sizeof(line), "%d%d %zu %zu %zu type %d add %d epilogue %d",
             how->op[0], how->op[1], d->rows, d->cols,
             how->op[0] == CUBLAS_OP_N ? a->cols : a->rows, a->type, add,
             how->epilogue);
    pthread_mutex_lock(&mutex);
    if (getenv("EMULATED_CHOICES") != NULL)
        note(line, algorithm);
    if (fast != NULL && atoi(fast) != algorithm)
        added++;
    pthread_mutex_unlock(&mutex);
}

__attribute__((destructor)) static void write_choices(void)
{
    const char *path = getenv("EMULATED_CHOICES");
    const char *rank = getenv("PLAIT_RANK");
    char name[4096];
    FILE *f;

    if (path == NULL || nseen == 0)
        return;
    snprintf(name, sizeof(name), "%s.%s", path, rank != NULL ? rank : "0");
    f = fopen(name, "w");
    if (f == NULL)
        return;
    for (int i = 0; i < nseen; i++)
        fprintf(f, "%s: %d\n", seen[i].line, seen[i].algorithm);
    fclose(f);
}
