/* SPDX-License-Identifier: Apache-2.0 */
/* What a pickle of torch.save's says of a tensor: its type, its shape, and
 * where its numbers are. */
#include "runtime/convert/torch_tensor.h"

#include <errno.h>

/* Item i of a tuple; NULL if it has fewer. */
static const struct plait_pickle_value *
item_of(const struct plait_pickle_value *v, size_t i)
{
    return v && v->kind == PLAIT_PICKLE_LIST && i < v->n ? v->items[i] : NULL;
}

static bool is_count(const struct plait_pickle_value *v)
{
    return v && v->kind == PLAIT_PICKLE_INT && v->i >= 0 &&
           v->i < (int64_t)1 << 48;
}

static int take_type(const struct plait_pickle_value *name,
                     enum plait_dtype *type)
{
    static const char *const names[] = {
        "torch FloatStorage", "torch BFloat16Storage", "torch HalfStorage"};
    static const enum plait_dtype types[] = {PLAIT_F32, PLAIT_BF16_T,
                                             PLAIT_FP16_T};

    for (int i = 0; i < 3; i++)
        if (plait_pickle_is(name, names[i])) {
            *type = types[i];
            return 0;
        }
    return -1;
}

/* Rows without gaps between them, but for a tensor without numbers. Returns how
 * many numbers it has in *n. */
static int take_shape(const struct plait_pickle_value *shape,
                      const struct plait_pickle_value *strides,
                      struct plait_torch_array *t, uint64_t *n,
                      struct plait_error *err)
{
    uint64_t step = 1;

    errno = EINVAL;
    if (!shape || shape->kind != PLAIT_PICKLE_LIST || !strides ||
        strides->kind != PLAIT_PICKLE_LIST || strides->n != shape->n)
        return plait_errorf(err, "has no shape");
    if (shape->n > PLAIT_TORCH_DIMS_MOST)
        return plait_errorf(err, "has %zu dimensions", shape->n);
    t->ndim = (int)shape->n;
    for (int i = t->ndim; i-- > 0;) {
        if (!is_count(shape->items[i]) || !is_count(strides->items[i]))
            return plait_errorf(err, "has no shape");
        t->shape[i] = (uint64_t)shape->items[i]->i;
        if ((uint64_t)strides->items[i]->i != step && t->shape[i] > 1)
            return plait_errorf(err, "is not contiguous");
        if (__builtin_mul_overflow(step, t->shape[i], &step))
            return plait_errorf(err, "has no shape");
    }
    *n = step;
    return 0;
}

/* ("storage", class, key, where, elements); the tensor begins `first` numbers
 * after the storage's, and has n. */
static int take_storage(const struct plait_torch_file *f,
                        const struct plait_pickle_value *kept, uint64_t first,
                        uint64_t n, struct plait_torch_array *t,
                        struct plait_error *err)
{
    const struct plait_pickle_value *where =
        kept && kept->kind == PLAIT_PICKLE_KEPT ? kept->items[0] : NULL;
    const struct plait_pickle_value *key = item_of(where, 2);
    uint64_t size;

    errno = EINVAL;
    if (!plait_pickle_is(item_of(where, 0), "storage") ||
        take_type(item_of(where, 1), &t->type) < 0)
        return plait_errorf(err, "is not fp32, bf16 or fp16");
    if (!key || key->kind != PLAIT_PICKLE_TEXT)
        return plait_errorf(err, "has no data in this file");
    if (plait_torch_file_data(f, key->text, key->n, &t->offset, &size, err) < 0)
        return -1;
    size /= plait_dtype_size(t->type);
    if (n > size || first > size - n)
        return plait_errorf(err, "has too little data in this file");
    t->offset += first * plait_dtype_size(t->type);
    return 0;
}

int plait_torch_array_of(const struct plait_torch_file *f,
                         const struct plait_pickle_value *v,
                         struct plait_torch_array *t, struct plait_error *err)
{
    const struct plait_pickle_value *first;
    uint64_t n = 0;

    if (v && v->kind == PLAIT_PICKLE_OBJECT &&
        plait_pickle_is(v->callee, "torch._utils _rebuild_parameter"))
        v = item_of(v->args, 0);
    errno = EINVAL;
    if (!v || v->kind != PLAIT_PICKLE_OBJECT ||
        !plait_pickle_is(v->callee, "torch._utils _rebuild_tensor_v2"))
        return plait_errorf(err, "is not a plain tensor");
    first = item_of(v->args, 1);
    if (!is_count(first))
        return plait_errorf(err, "is not a plain tensor");
    if (take_shape(item_of(v->args, 2), item_of(v->args, 3), t, &n, err) < 0)
        return -1;
    return take_storage(f, item_of(v->args, 0), (uint64_t)first->i, n, t, err);
}

int plait_torch_tensor_of(const struct plait_torch_file *f,
                          const struct plait_pickle_value *v,
                          struct plait_torch_tensor *t, struct plait_error *err)
{
    struct plait_torch_array a;

    if (plait_torch_array_of(f, v, &a, err) < 0)
        return -1;
    errno = EINVAL;
    if (a.ndim < 1 || a.ndim > 2)
        return plait_errorf(err, "has %d dimensions", a.ndim);
    if (a.shape[0] < 1 || (a.ndim == 2 && a.shape[1] < 1))
        return plait_errorf(err, "has no shape");
    *t = (struct plait_torch_tensor){.type = a.type,
                                     .ndim = a.ndim,
                                     .shape = {a.shape[0], 1},
                                     .offset = a.offset};
    if (a.ndim == 2)
        t->shape[1] = a.shape[1];
    return 0;
}
