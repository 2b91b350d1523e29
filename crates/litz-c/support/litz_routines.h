/* Declares the routines of the support code: what works on whole buffers. */
#ifndef LITZ_ROUTINES_H
#define LITZ_ROUTINES_H

#include "litz_support.h"

/* A routine: buffers read, buffers written whole, and integers. */
typedef bool litz_routine(litz_call *call, const litz_buffer *reads, const litz_buffer *writes, const int64_t *ints);

extern litz_routine litz_nms;
extern litz_routine litz_nonzero;
extern litz_routine litz_sort;
extern litz_routine litz_sort_rows;
extern litz_routine litz_topk;

/* Fails with the message unless every element is true. */
bool litz_assert(litz_call *call, litz_memory mask, const char *message);

/* Regions of images. */
extern litz_routine litz_ps_roi_pool;
extern litz_routine litz_roi_align;
extern litz_routine litz_roi_pool;

/* Fourier transforms of rows. */
extern litz_routine litz_fft;
extern litz_routine litz_irfft;
extern litz_routine litz_rfft;

/* Linear algebra. */
extern litz_routine litz_cholesky;
extern litz_routine litz_householder;
extern litz_routine litz_lu;
extern litz_routine litz_lu_solve;
extern litz_routine litz_matrix_exp;
extern litz_routine litz_permutation;
extern litz_routine litz_qr;
extern litz_routine litz_triangular;

/* Functions of each element. */
extern litz_routine litz_airy_ai;
extern litz_routine litz_bessel_j0;
extern litz_routine litz_bessel_j1;
extern litz_routine litz_bessel_k0;
extern litz_routine litz_bessel_k1;
extern litz_routine litz_bessel_scaled_k0;
extern litz_routine litz_bessel_scaled_k1;
extern litz_routine litz_bessel_y0;
extern litz_routine litz_bessel_y1;
extern litz_routine litz_gammainc;
extern litz_routine litz_gammaincc;
extern litz_routine litz_gcd;
extern litz_routine litz_hermite_h;
extern litz_routine litz_hermite_he;
extern litz_routine litz_laguerre_l;
extern litz_routine litz_legendre_p;
extern litz_routine litz_ndtri;
extern litz_routine litz_zeta;

/* Functions that the code of kernels calls, beside those of the C library. */
float lz_digamma_f32(float x);
double lz_digamma_f64(double x);
float lz_erfinv_f32(float x);
double lz_erfinv_f64(double x);

#endif
