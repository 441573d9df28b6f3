# SPDX-License-Identifier: Apache-2.0

# --enable-werror and the project's warnings, in WARN_CFLAGS
AC_DEFUN([PLAIT_WARNINGS], [
    AC_ARG_ENABLE([werror],
        [AS_HELP_STRING([--enable-werror], [treat warnings as errors])])
    WARN_CFLAGS="-std=gnu11 -Wall -Wextra -Wshadow -Wstrict-prototypes"
    WARN_CFLAGS="$WARN_CFLAGS -Wmissing-prototypes -Wformat=2"
    AS_IF([test "x$enable_werror" = xyes],
          [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
    AC_SUBST([WARN_CFLAGS])
    WARN_CXXFLAGS="-std=gnu++17 -Wall -Wextra -Wshadow -Wformat=2"
    AS_IF([test "x$enable_werror" = xyes],
          [WARN_CXXFLAGS="$WARN_CXXFLAGS -Werror"])
    AC_SUBST([WARN_CXXFLAGS])
])

# --enable-sanitizer=address,undefined
AC_DEFUN([PLAIT_SANITIZER], [
    AC_ARG_ENABLE([sanitizer],
        [AS_HELP_STRING([--enable-sanitizer=LIST],
            [build with -fsanitize=LIST (yes: address,undefined)])])
    AS_CASE(["$enable_sanitizer"],
        [yes], [enable_sanitizer=address,undefined],
        [no], [enable_sanitizer=])
    SANITIZER_CFLAGS=
    AS_IF([test -n "$enable_sanitizer"], [
        SANITIZER_CFLAGS="-fsanitize=$enable_sanitizer"
        SANITIZER_CFLAGS="$SANITIZER_CFLAGS -fno-omit-frame-pointer"
        SANITIZER_CFLAGS="$SANITIZER_CFLAGS -fno-sanitize-recover=undefined"
    ])
    AC_SUBST([SANITIZER_CFLAGS])
    AM_CONDITIONAL([WITH_SANITIZER], [test -n "$enable_sanitizer"])
])

# --enable-fuzz: everything instrumented for libFuzzer, and the fuzz targets
AC_DEFUN([PLAIT_FUZZ], [
    AC_ARG_ENABLE([fuzz],
        [AS_HELP_STRING([--enable-fuzz], [build libFuzzer targets (clang)])])
    AS_IF([test "x$enable_fuzz" = xyes], [
        saved_CFLAGS=$CFLAGS
        CFLAGS="$CFLAGS -fsanitize=fuzzer"
        AC_MSG_CHECKING([for libFuzzer])
        AC_LINK_IFELSE([AC_LANG_SOURCE([[
            int LLVMFuzzerTestOneInput(const char *data, unsigned long size);
            int LLVMFuzzerTestOneInput(const char *data, unsigned long size)
            { return data && size ? 0 : 0; }]])],
            [AC_MSG_RESULT([yes])],
            [AC_MSG_RESULT([no])
             AC_MSG_ERROR([--enable-fuzz needs libFuzzer: use CC=clang])])
        CFLAGS=$saved_CFLAGS
        SANITIZER_CFLAGS="$SANITIZER_CFLAGS -fsanitize=fuzzer-no-link"
    ])
    AM_CONDITIONAL([WITH_FUZZ], [test "x$enable_fuzz" = xyes])
])

AC_DEFUN([AX_PTHREAD_OR_FAIL], [
    AC_SEARCH_LIBS([pthread_create], [pthread], [],
        [AC_MSG_ERROR([POSIX threads are needed])])
])

# oneDNN and a BLAS with a C interface, for kernels/cpu
AC_DEFUN([PLAIT_CPU_LIBRARIES], [
    AC_ARG_WITH([blas],
        [AS_HELP_STRING([--with-blas=PKG],
            [pkg-config name of the OpenBLAS to use (openblas)])],
        [], [with_blas=openblas])
    PKG_CHECK_MODULES([BLAS], [$with_blas])
    AC_CHECK_HEADER([oneapi/dnnl/dnnl.h], [],
        [AC_MSG_ERROR([oneDNN is needed (libdnnl-dev)])])
    saved_LIBS=$LIBS
    AC_CHECK_LIB([dnnl], [dnnl_engine_create], [DNNL_LIBS=-ldnnl],
        [AC_MSG_ERROR([oneDNN is needed (libdnnl-dev)])])
    LIBS=$saved_LIBS
    AC_SUBST([DNNL_LIBS])
    # Programs that link the kernels are not linked with OPENMP_CFLAGS. Only
    # clang itself knows where its own library is.
    saved_LIBS=$LIBS
    AC_COMPILE_IFELSE([AC_LANG_PROGRAM([@%:@ifndef __clang__
@%:@error
@%:@endif])],
        [LIBS="$OPENMP_CFLAGS $LIBS"
         AC_CHECK_FUNC([__kmpc_fork_call], [],
            [AC_MSG_ERROR([LLVM's OpenMP library is needed (libomp-dev)])])],
        [AC_SEARCH_LIBS([GOMP_parallel], [gomp], [],
            [AC_MSG_ERROR([a compiler with OpenMP is needed])])])
    OPENMP_LIBS=${LIBS%"$saved_LIBS"}
    LIBS=$saved_LIBS
    AC_SUBST([OPENMP_LIBS])
])

# Can kernels/cpu be compiled for AVX2 and AVX-512 too?
AC_DEFUN([PLAIT_X86_VECTORS], [
    saved_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -mavx2 -mfma -mf16c -mavx512f -mavx512bw -mavx512dq"
    CFLAGS="$CFLAGS -mavx512vl -mavx512bf16 -mprefer-vector-width=512"
    AC_CACHE_CHECK([for x86-64 vector extensions], [plait_cv_x86_vectors], [
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <immintrin.h>]],
            [[__m512 x = _mm512_setzero_ps(); (void)x;]])],
            [plait_cv_x86_vectors=yes], [plait_cv_x86_vectors=no])])
    CFLAGS=$saved_CFLAGS
    AS_IF([test $plait_cv_x86_vectors = yes],
          [AC_DEFINE([HAVE_X86_VECTORS], [1], [AVX2, AVX-512 are compiled])])
    AM_CONDITIONAL([WITH_X86_VECTORS], [test $plait_cv_x86_vectors = yes])
])

# Can kernels/cpu be compiled for SVE too? (kernels/cpu/isa.h)
AC_DEFUN([PLAIT_ARM_VECTORS], [
    saved_CFLAGS=$CFLAGS
    CFLAGS="$CFLAGS -march=armv8.2-a+sve -msve-vector-bits=256"
    AC_CACHE_CHECK([for SVE vectors of 256 bits], [plait_cv_arm_vectors], [
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#if __ARM_FEATURE_SVE_BITS != 256
#error
#endif]], [])],
            [plait_cv_arm_vectors=yes], [plait_cv_arm_vectors=no])])
    CFLAGS=$saved_CFLAGS
    AS_IF([test $plait_cv_arm_vectors = yes],
          [AC_DEFINE([HAVE_ARM_VECTORS], [1], [SVE is compiled])])
    AM_CONDITIONAL([WITH_ARM_VECTORS], [test $plait_cv_arm_vectors = yes])
])

# SentencePiece tokenizers, for plait-prep. The library that trains them,
# which its pkg-config file names too, is not needed.
AC_DEFUN([PLAIT_SENTENCEPIECE], [
    AC_ARG_WITH([sentencepiece],
        [AS_HELP_STRING([--without-sentencepiece],
            [no tokenizers but the byte one])],
        [], [with_sentencepiece=check])
    have_spm=no
    AS_IF([test "x$with_sentencepiece" != xno], [
        PKG_CHECK_MODULES([SPM], [sentencepiece >= 0.1.90], [have_spm=yes], [
            AS_IF([test "x$with_sentencepiece" != xcheck],
                [AC_MSG_ERROR([SentencePiece not found (libsentencepiece-dev)])])])
    ])
    AS_IF([test $have_spm = yes], [
        AC_LANG_PUSH([C++])
        AC_MSG_CHECKING([whether $CXX compiles C++17])
        saved_CXXFLAGS=$CXXFLAGS
        CXXFLAGS="$CXXFLAGS -std=gnu++17"
        AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[#include <string_view>]])],
            [], [have_spm=no])
        CXXFLAGS=$saved_CXXFLAGS
        AC_MSG_RESULT([$have_spm])
        AC_LANG_POP([C++])
    ])
    SPM_LIBS="$(echo "$SPM_LIBS" | $SED 's/-lsentencepiece_train//') -lstdc++"
    AS_IF([test $have_spm = no], [SPM_CFLAGS= SPM_LIBS=])
    AM_CONDITIONAL([WITH_SENTENCEPIECE], [test $have_spm = yes])
])

AC_DEFUN([PLAIT_MPI], [
    AC_ARG_WITH([mpi],
        [AS_HELP_STRING([--without-mpi], [build without MPI])],
        [], [with_mpi=check])
    plait_mpi_summary=no
    have_mpi=no
    AS_IF([test "x$with_mpi" != xno], [
        PKG_CHECK_MODULES([MPI], [ompi-c], [have_mpi=yes], [
            PKG_CHECK_MODULES([MPI], [mpich], [have_mpi=yes], [
                AS_IF([test "x$with_mpi" != xcheck],
                      [AC_MSG_ERROR([no MPI found (ompi-c or mpich)])])])])
    ])
    AS_IF([test $have_mpi = yes], [
        AC_DEFINE([HAVE_MPI], [1], [MPI is used])
        plait_mpi_summary="yes ($MPI_LIBS)"
    ])
    AM_CONDITIONAL([WITH_MPI], [test $have_mpi = yes])
])

AC_DEFUN([PLAIT_SLURM], [
    AC_ARG_WITH([slurm],
        [AS_HELP_STRING([--with-slurm@<:@=PREFIX@:>@],
            [build the plugin against the Slurm in PREFIX])],
        [], [with_slurm=check])
    plait_slurm_summary=no
    have_slurm=no
    # Not -I: the headers are not ours to warn about.
    SLURM_CFLAGS=
    AS_IF([test "x$with_slurm" != xno], [
        AS_CASE(["$with_slurm"],
            [yes|check], [],
            [SLURM_CFLAGS="-isystem $with_slurm/include"])
        saved_CPPFLAGS=$CPPFLAGS
        CPPFLAGS="$CPPFLAGS $SLURM_CFLAGS"
        AC_CHECK_HEADERS([slurm/spank.h], [have_slurm=yes], [
            AS_IF([test "x$with_slurm" != xcheck],
                  [AC_MSG_ERROR([slurm/spank.h not found (libslurm-dev)])])],
            [#include <stdint.h>])
        CPPFLAGS=$saved_CPPFLAGS
    ])
    AS_IF([test $have_slurm = yes], [plait_slurm_summary="yes $SLURM_CFLAGS"])
    AC_SUBST([SLURM_CFLAGS])
    slurmplugindir="$libdir/slurm"
    AC_ARG_WITH([slurm-plugindir],
        [AS_HELP_STRING([--with-slurm-plugindir=DIR],
            [where spank_plait.so goes (LIBDIR/slurm)])],
        [slurmplugindir=$withval])
    AC_SUBST([slurmplugindir])
    AC_ARG_WITH([cache-dir],
        [AS_HELP_STRING([--with-cache-dir=DIR],
            [where each node keeps what it looks like (/run/plait)])],
        [cachedir=$withval], [cachedir=/run/plait])
    AC_DEFINE_UNQUOTED([PLAIT_CACHEDIR], ["$cachedir"],
        [where each node keeps what it looks like])
    AM_CONDITIONAL([WITH_SLURM], [test $have_slurm = yes])
])

# CUDA, cuBLASLt and NCCL: --with-cuda=DIR, CUDA_HOME, nvcc on PATH, or the
# toolkit's usual prefix
AC_DEFUN([PLAIT_CUDA], [
    AC_ARG_WITH([cuda],
        [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
            [CUDA toolkit with cuBLAS and NCCL])],
        [], [with_cuda=check])
    AC_ARG_WITH([nvcc-gencode],
        [AS_HELP_STRING([--with-nvcc-gencode=FLAGS],
            [GPU architectures to compile for])],
        [], [with_nvcc_gencode="-gencode=arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=@<:@sm_90,compute_90@:>@"])
    AC_ARG_WITH([cudnn],
        [AS_HELP_STRING([--with-cudnn],
            [attention and convolutions by cuDNN 9 unless PLAIT_ATTENTION, PLAIT_CONVOLUTION=own])],
        [], [with_cudnn=no])
    plait_cuda_summary=no
    have_cuda=no
    have_cudnn=no
    NVCC=
    AS_IF([test "x$with_cuda" != xno], [
        AS_CASE(["$with_cuda"],
            [yes|check], [
                AC_PATH_PROG([NVCC], [nvcc], [],
                    [${CUDA_HOME:+$CUDA_HOME/bin:}$PATH:/usr/local/cuda/bin])],
            [AC_PATH_PROG([NVCC], [nvcc], [], [$with_cuda/bin])])
        AS_IF([test -n "$NVCC"], [
            cuda_home=`dirname "$NVCC"`; cuda_home=`cd "$cuda_home/.." && pwd`
            CUDA_CFLAGS="-isystem $cuda_home/include"
            cuda_lib=$cuda_home/lib64
            AS_IF([test ! -d "$cuda_lib"], [cuda_lib=$cuda_home/lib])
            CUDA_LDFLAGS="-R$cuda_lib"
            CUDA_LIBS="-L$cuda_lib -lcublasLt -lcudart"
            NCCL_LIBS="-L$cuda_lib -lnccl -lcudart"
            saved_CPPFLAGS=$CPPFLAGS; saved_LIBS=$LIBS
            CPPFLAGS="$CPPFLAGS $CUDA_CFLAGS"; LIBS="$LIBS -L$cuda_lib"
            AC_CHECK_HEADER([cublasLt.h],
                [AC_CHECK_HEADER([nccl.h], [have_cuda=yes])])
            AS_IF([test "x$with_cudnn" != xno],
                [AC_CHECK_HEADER([cudnn_graph.h], [have_cudnn=yes])])
            CPPFLAGS=$saved_CPPFLAGS; LIBS=$saved_LIBS
        ])
        AS_IF([test $have_cuda = no && test "x$with_cuda" != xcheck],
              [AC_MSG_ERROR([CUDA with cuBLAS and NCCL not found])])
    ])
    AS_IF([test "x$with_cudnn" != xno && test $have_cuda$have_cudnn != yesyes],
          [AC_MSG_ERROR([--with-cudnn: no cudnn_graph.h (cuDNN 9) beside CUDA])])
    NVCC_GENCODE=$with_nvcc_gencode
    AS_IF([test $have_cuda = yes], [
        AC_DEFINE([HAVE_CUDA], [1], [CUDA, cuBLASLt and NCCL are used])
        plait_cuda_summary="yes ($cuda_home)"
        AS_IF([test $have_cudnn = yes], [
            AC_DEFINE([HAVE_CUDNN], [1], [cuDNN can be chosen])
            CUDA_LIBS="$CUDA_LIBS -lcudnn"
            plait_cuda_summary="yes, with cuDNN ($cuda_home)"
        ])
    ])
    AC_SUBST([NVCC]) AC_SUBST([NVCC_GENCODE])
    AC_SUBST([CUDA_CFLAGS]) AC_SUBST([CUDA_LDFLAGS]) AC_SUBST([CUDA_LIBS]) AC_SUBST([NCCL_LIBS])
    AM_CONDITIONAL([WITH_CUDA], [test $have_cuda = yes])
])
