/* SPDX-License-Identifier: Apache-2.0 */
/* The search for the fastest algorithm of a matrix product, and the choices
 * found here or on another rank; see kernels/products.h. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/matmul.h"
#include "kernels/products.h"

#define MOST 128 /* wanted products */
#define LINE 512 /* bytes of a product's line with the final 0 */
#define ROOM " room "
#define HEX (2 * sizeof(cublasLtMatmulAlgo_t))
_Static_assert(LINE + sizeof(PLAIT_CHOICE_MARK) + HEX + 1 <= PLAIT_CHOICE_MOST,
               "");

struct choice {
    char product[LINE];
    cublasLtMatmulAlgo_t algo;
};

struct cuda_tuned {
    char kind[LINE / 2]; /* the kind of device, with which its lines begin */
    struct choice *choices;
    int nchoices;
    char wanted[MOST][LINE];
    int nwanted;
};

/* -- lines ---------------------------------------------------------------- */

/* Choices hold only for the same driver, library and kind of GPU: elsewhere the
 * algorithm may be slower or not exist. */
static int describe_kind(const struct plait_device *dev, char *kind,
                         size_t size)
{
    struct cudaDeviceProp prop;
    int driver = 0;

    if (cudaGetDeviceProperties(&prop, dev->index) != cudaSuccess ||
        cudaDriverGetVersion(&driver) != cudaSuccess)
        return -1;
    for (char *c = prop.name; *c != '\0'; c++)
        if (*c == ' ' || *c == ':')
            *c = '_';
    snprintf(kind, size, "%.100s driver %d cublasLt %zu ", prop.name, driver,
             cublasLtGetVersion());
    return 0;
}

/* NULL: out of memory, or the device cannot be asked. */
static struct cuda_tuned *tuned_of(struct plait_device *dev)
{
    struct cuda_tuned *t;

    if (dev->tuned != NULL)
        return dev->tuned;
    t = calloc(1, sizeof(*t));
    if (t == NULL || describe_kind(dev, t->kind, sizeof(t->kind)) != 0) {
        free(t);
        return NULL;
    }
    dev->tuned = t;
    return t;
}

void cuda_tune_forget(struct plait_device *dev)
{
    if (dev->tuned != NULL)
        free(dev->tuned->choices);
    free(dev->tuned);
    dev->tuned = NULL;
}

/* Rounds a size up. Sizes that are no multiple of 64, such as the rows of an
 * expert, share their choices: four steps per power of two. */
static size_t bucket_of(size_t n)
{
    size_t step = 1;

    if (n % 64 == 0)
        return n;
    while (step * 8 <= n)
        step *= 2;
    return (n + step - 1) / step * step;
}

static void write_product(const struct cuda_tuned *t, const struct product *k,
                          char line[LINE])
{
    snprintf(line, LINE,
             "%sop %d,%d type %d,%d tf32 %d fp8 %d size %zu,%zu,%zu add %d "
             "epilogue %d align %u",
             t->kind, k->op_a, k->op_b, k->in, k->out, k->tf32, k->fp8,
             bucket_of(k->m), bucket_of(k->n), bucket_of(k->k), k->accumulate,
             k->epilogue, k->align);
    if (k->room > 0)
        snprintf(line + strlen(line), LINE - strlen(line), ROOM "%d", k->room);
}

/* Whether the line is a product of this kind of device; parses it into k. */
static bool read_product(const struct cuda_tuned *t, const char *line,
                         struct product *k)
{
    size_t n = strlen(t->kind);
    const char *room = strstr(line, ROOM);
    int op_a, op_b, in, out, fp8, epilogue;

    memset(k, 0, sizeof(*k));
    if (strncmp(line, t->kind, n) != 0 ||
        sscanf(line + n,
               "op %d,%d type %d,%d tf32 %d fp8 %d size %zu,%zu,%zu add %d "
               "epilogue %d align %u",
               &op_a, &op_b, &in, &out, &k->tf32, &fp8, &k->m, &k->n, &k->k,
               &k->accumulate, &epilogue, &k->align) != 12)
        return false;
    k->op_a = (cublasOperation_t)op_a;
    k->op_b = (cublasOperation_t)op_b;
    k->in = (enum plait_dtype)in;
    k->out = (enum plait_dtype)out;
    k->fp8 = fp8;
    k->fast = fp8 != FP8_NONE && out != PLAIT_F32; /* as fp8.c has it */
    k->epilogue = (cublasLtEpilogue_t)epilogue;
    k->room = room != NULL ? atoi(room + strlen(ROOM)) : 0;
    return true;
}

static bool read_algo(const char *hex, cublasLtMatmulAlgo_t *algo)
{
    unsigned char *p = (unsigned char *)algo;

    if (strspn(hex, "0123456789abcdef") != HEX)
        return false;
    for (size_t i = 0; i < sizeof(*algo); i++) {
        unsigned byte;

        if (sscanf(hex + 2 * i, "%2x", &byte) != 1)
            return false;
        p[i] = (unsigned char)byte;
    }
    return true;
}

/* -- what was chosen ------------------------------------------------------- */

static struct choice *find_choice(struct cuda_tuned *t, const char *product)
{
    for (int i = 0; i < t->nchoices; i++)
        if (strcmp(t->choices[i].product, product) == 0)
            return &t->choices[i];
    return NULL;
}

bool cuda_tune_find(struct plait_device *dev, struct cuda_matmul *p)
{
    struct cuda_tuned *t = dev->tuned;
    cublasLtMatmulHeuristicResult_t result;
    struct choice *c;
    char line[LINE];

    if (t == NULL || t->nchoices == 0)
        return false;
    write_product(t, &p->key, line);
    c = find_choice(t, line);
    if (c == NULL ||
        cublasLtMatmulAlgoCheck(dev->blas, p->desc, p->a, p->b, p->d, p->d,
                                &c->algo, &result) != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > WORKSPACE)
        return false;
    p->algo = c->algo;
    return true;
}

/* If out of memory or room, the product keeps the library's first choice. */
void cuda_tune_want(struct plait_device *dev, const struct product *key)
{
    struct cuda_tuned *t = tuned_of(dev);
    char line[LINE];

    if (t == NULL || t->nwanted == MOST)
        return;
    write_product(t, key, line);
    if (find_choice(t, line) != NULL)
        return;
    for (int i = 0; i < t->nwanted; i++)
        if (strcmp(t->wanted[i], line) == 0)
            return;
    memcpy(t->wanted[t->nwanted++], line, LINE);
}

static char *products_wanted(struct plait_device *dev)
{
    char *lines = malloc((size_t)MOST * LINE + 1), *end = lines;
    struct cuda_tuned *t;

    if (lines == NULL)
        return NULL;
    *lines = '\0';
    pthread_mutex_lock(&dev->lock);
    t = dev->tuned;
    for (int i = 0; t != NULL && i < t->nwanted; i++)
        end += sprintf(end, "%s\n", t->wanted[i]);
    if (t != NULL)
        t->nwanted = 0;
    pthread_mutex_unlock(&dev->lock);
    return lines;
}

/* 0; 1: the line is damaged; -1: out of memory. */
static int take_line(struct cuda_tuned *t, const char *line, size_t length)
{
    char text[LINE + 3 + HEX], *hex;
    cublasLtMatmulAlgo_t algo;
    struct choice *c;

    if (length >= sizeof(text))
        return 1;
    memcpy(text, line, length);
    text[length] = '\0';
    hex = strstr(text, PLAIT_CHOICE_MARK);
    if (hex == NULL || hex - text >= LINE || text[length - HEX - 1] != ' ' ||
        !read_algo(hex + strlen(PLAIT_CHOICE_MARK), &algo))
        return 1;
    *hex = '\0';
    if (strncmp(text, t->kind, strlen(t->kind)) != 0)
        return 0;
    c = find_choice(t, text);
    if (c == NULL) {
        c = realloc(t->choices,
                    ((size_t)t->nchoices + 1) * sizeof(*t->choices));
        if (c == NULL)
            return -1;
        t->choices = c;
        c += t->nchoices++;
        memcpy(c->product, text, (size_t)(hex - text) + 1);
    }
    c->algo = algo;
    return 0;
}

/* All plans are dropped, to be made again with the new choices. */
static int products_choose(struct plait_device *dev, const char *choices)
{
    struct cuda_tuned *t;
    int damaged = 0, rc = 0;

    pthread_mutex_lock(&dev->lock);
    t = tuned_of(dev);
    if (t == NULL)
        rc = -1;
    while (rc >= 0 && *choices != '\0') {
        size_t n = strcspn(choices, "\n");

        rc = n > HEX ? take_line(t, choices, n) : 1;
        damaged += rc > 0;
        choices += n + (choices[n] == '\n');
    }
    cuda_matmul_forget(dev);
    pthread_mutex_unlock(&dev->lock);
    if (rc < 0) {
        errno = ENOMEM;
        return -1;
    }
    return damaged;
}

/* -- the search ------------------------------------------------------------ */

static char *write_choice(const char *product, const cublasLtMatmulAlgo_t *algo)
{
    const unsigned char *bytes = (const unsigned char *)algo;
    size_t n = strcspn(product, "\n");
    char *line = malloc(n + strlen(PLAIT_CHOICE_MARK) + HEX + 2), *end;

    if (line == NULL)
        return NULL;
    memcpy(line, product, n);
    end = line + n + sprintf(line + n, PLAIT_CHOICE_MARK);
    for (size_t i = 0; i < sizeof(*algo); i++)
        end += sprintf(end, "%02x", bytes[i]);
    memcpy(end, "\n", 2);
    return line;
}

/* A search must not end a run: errors only mean that there is no choice. */
static char *product_search(struct plait_queue *q, const char *product)
{
    struct cuda_tuned *t = q->dev->tuned;
    cublasLtMatmulAlgo_t algo;
    struct product key;

    if (t == NULL || !read_product(t, product, &key) || cuda_enter(q) != 0 ||
        !cuda_tune_fastest(q, &key, &algo))
        return NULL;
    return write_choice(product, &algo);
}

static void leave_room(struct plait_device *dev, int change, int forward)
{
    pthread_mutex_lock(&dev->lock);
    dev->room += change;
    dev->forward_room += forward;
    pthread_mutex_unlock(&dev->lock);
}

static const struct plait_product_ops products = {
    .wanted = products_wanted,
    .search = product_search,
    .choose = products_choose,
    .leave_room = leave_room,
};

void cuda_tune_ops(struct plait_ops *ops)
{
    ops->products = &products;
}
