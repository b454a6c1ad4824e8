//===- MathCoefficients.h - Polynomials of the math emitters ------*- C++
//-*-===//
//
// Part of the Intarsia project, under the Apache License v2.0 with LLVM
// Exceptions. See LICENSE for license information.
//
//===----------------------------------------------------------------------===//
//
// Minimax polynomials, lowest power first, made by tools/fit-math/fit.py: see
// there what each approximates. F32 and F64 name the format that they are
// evaluated in; a Short one is evaluated in f64 for a result in f32. The
// comment is the largest relative error of the result.
//
//===----------------------------------------------------------------------===//

#ifndef INTARSIA_PASSES_CPU_MATHCOEFFICIENTS_H
#define INTARSIA_PASSES_CPU_MATHCOEFFICIENTS_H

namespace intarsia::coefficients {

/// 2^-31.0
inline constexpr double expF32[] = {
    0x1.0000000000000p-1, 0x1.5555540000000p-3,  0x1.5554ea0000000p-5,
    0x1.1113a40000000p-7, 0x1.6d4bfe0000000p-10, 0x1.9c84dc0000000p-13,
};

/// 2^-56.8
inline constexpr double expF64[] = {
    0x1.0000000000001p-1,  0x1.5555555555557p-3,  0x1.5555555554b26p-5,
    0x1.11111111105c5p-7,  0x1.6c16c16fce1c2p-10, 0x1.a01a01a94a1ffp-13,
    0x1.a019ef43d3c77p-16, 0x1.71de089ac7697p-19, 0x1.280cdbabde8eep-22,
    0x1.af445f76b6597p-26, 0x1.c0f40a5c18dbfp-30,
};

/// 2^-27.5
inline constexpr double exp2F32[] = {
    0x1.62e4320000000p-1, 0x1.ebfbe60000000p-3,  0x1.c6ada60000000p-5,
    0x1.3b21cc0000000p-7, 0x1.5fc0b60000000p-10, 0x1.4bae8e0000000p-13,
};

/// 2^-58.9
inline constexpr double exp2F64[] = {
    0x1.62e42fefa39efp-1,  0x1.ebfbdff82c58ep-3,  0x1.c6b08d704a1c2p-5,
    0x1.3b2ab6fba5266p-7,  0x1.5d87fe787a440p-10, 0x1.430912f6db57fp-13,
    0x1.ffcbfd22ff28ap-17, 0x1.62c02a178b522p-20, 0x1.b523904de6de8p-24,
    0x1.e4ad71a1c853ap-28, 0x1.ebd3903e1f135p-32, 0x1.f859d8611b4a5p-36,
};

/// 2^-30.8
inline constexpr double logF32[] = {
    0x1.5555580000000p-2,  -0x1.ffffe40000000p-3, 0x1.9996f00000000p-3,
    -0x1.55616a0000000p-3, 0x1.2502a60000000p-3,  -0x1.fd73f80000000p-4,
    0x1.b74f8c0000000p-4,  -0x1.b042360000000p-4, 0x1.f048660000000p-4,
    -0x1.3c226e0000000p-4,
};

/// 2^-59.5
inline constexpr double logAtanhF64[] = {
    0x1.5555555555592p-1, 0x1.999999997ff55p-2, 0x1.24924941dca10p-2,
    0x1.c71c5218a6424p-3, 0x1.74663bfeb13b0p-3, 0x1.39a2012049edap-3,
    0x1.2f02c709ad455p-3,
};

/// 2^-44.9
inline constexpr double logAtanhShortF64[] = {
    0x1.555555561d877p-1, 0x1.999996ab2461fp-2, 0x1.24941130ebb62p-2,
    0x1.c62b508c2248cp-3, 0x1.91124848e355fp-3,
};

/// 2^-31.8
inline constexpr double expShortF64[] = {
    0x1.0000002e4ad6ap-1, 0x1.555555a78620ep-3,  0x1.55549d0f675acp-5,
    0x1.11101b523d4c3p-7, 0x1.6d85323b05d2ep-10, 0x1.a2a6359bf5d31p-13,
};

/// 2^-28.5
inline constexpr double exp2ShortF64[] = {
    0x1.62e4311af3789p-1, 0x1.ebfbe2cf62875p-3,  0x1.c6ae6e579b54cp-5,
    0x1.3b2705c75ec99p-7, 0x1.5f7484b26e6a9p-10, 0x1.47101598102dbp-13,
};

/// 2^-27.6
inline constexpr double sinF32[] = {
    -0x1.5555420000000p-3,
    0x1.1105fe0000000p-7,
    -0x1.98d93c0000000p-13,
};

/// 2^-32.6
inline constexpr double cosF32[] = {
    0x1.5555480000000p-5,
    -0x1.6c0af40000000p-10,
    0x1.9991200000000p-16,
};

/// 2^-37.1
inline constexpr double sinShortF64[] = {
    -0x1.5555554a74191p-3,
    0x1.11110700854cfp-7,
    -0x1.a00e621bb28acp-13,
    0x1.6c8f6826abf8ep-19,
};

/// 2^-32.6
inline constexpr double cosShortF64[] = {
    0x1.555548332dbf5p-5,
    -0x1.6c0b11e11f444p-10,
    0x1.99994a381a7a6p-16,
};

/// 2^-57.4
inline constexpr double sinF64[] = {
    -0x1.5555555555544p-3, 0x1.111111110f0c6p-7,   -0x1.a01a019b17d3ap-13,
    0x1.71de349d6f8dfp-19, -0x1.ae5dba96d9c31p-26, 0x1.5d6127592f608p-33,
};

/// 2^-63.4
inline constexpr double cosF64[] = {
    0x1.5555555555547p-5,   -0x1.6c16c16c14776p-10, 0x1.a01a019bb891dp-16,
    -0x1.27e4f7572ba73p-22, 0x1.1ee9734df4f6ep-29,  -0x1.8f70a8e80e353p-37,
};

/// 2^-29.4
inline constexpr double erfSmallF32[] = {
    0x1.06eba80000000p-3,  -0x1.81273e0000000p-2, 0x1.ce2ce60000000p-4,
    -0x1.b7f71a0000000p-6, 0x1.53f2240000000p-8,  -0x1.a3515e0000000p-11,
    0x1.4771fe0000000p-14,
};

/// 2^-29.6
inline constexpr double erfSmallShortF64[] = {
    0x1.06eba7f24a56ep-3,  -0x1.81273de9de487p-2, 0x1.ce2cf75d51572p-4,
    -0x1.b7f90f2376676p-6, 0x1.5405c2d6555cfp-8,  -0x1.a3f77d5225f14p-11,
    0x1.496b8a0924968p-14,
};

/// 2^-56.0
inline constexpr double erfSmallF64[] = {
    0x1.06eba8214db68p-3,   -0x1.812746b03799dp-2,  0x1.ce2f21a03f8b9p-4,
    -0x1.b82ce311a979ap-6,  0x1.565bcceed921bp-8,   -0x1.c02daeb68f458p-11,
    0x1.f9a2969c6d387p-14,  -0x1.f4c82c6e85e97p-17, 0x1.b96b2ffefc714p-20,
    -0x1.5b8b184f08452p-23, 0x1.d3d18c1fa9055p-27,  -0x1.a210acdd30fa2p-31,
};

/// 2^-29.8
inline constexpr double erfTailF32[] = {
    -0x1.025f760000000p-11, -0x1.a044860000000p+0, -0x1.d75f520000000p-1,
    -0x1.30a44e0000000p-3,  0x1.0217500000000p-5,  -0x1.16b02a0000000p-8,
    0x1.19ee8a0000000p-12,
};

/// 2^-30.3
inline constexpr double erfcShortF64[] = {
    0x1.3ccda0b615e1fp+0,  -0x1.1f367479bcbc2p-3, 0x1.d5f25cae03eeep-9,
    0x1.51009bafd250dp-4,  -0x1.bda98465de67dp-4, 0x1.7a1f4fd869439p-4,
    -0x1.e0ba188b3b3ecp-5, 0x1.cfca5a1895497p-6,  -0x1.42455ec33ad4ap-7,
    0x1.e0129b0bad844p-10, 0x1.0cf66d6e7701dp-11, -0x1.a32a337f97fe9p-13,
};

/// 2^-61.0
inline constexpr double erfTailF64[] = {
    0x1.3ccda0b5d104ap+0,   -0x1.1f36768e2f443p-3,  0x1.d5f2505e5f198p-9,
    0x1.51014a68b68a0p-4,   -0x1.bdaa56344efe5p-4,  0x1.7a0cccff1a601p-4,
    -0x1.e112a81533ad0p-5,  0x1.cf04fa27fde95p-6,   -0x1.47412e68fa5f0p-7,
    0x1.60fdeb1e4b61ap-10,  -0x1.97d23e2593f5cp-13, -0x1.61f493d69e9e5p-11,
    -0x1.fd8edf0e95485p-14,
};

/// 2^-31.2
inline constexpr double tanhF32[] = {
    -0x1.5555520000000p-2, 0x1.110f600000000p-3,  -0x1.b995060000000p-5,
    0x1.5d4a920000000p-6,  -0x1.b5c1920000000p-8,
};

/// 2^-31.4
inline constexpr double tanhShortF64[] = {
    -0x1.555551014d418p-2, 0x1.110f21c68cf26p-3,  -0x1.b98acf1e9da19p-5,
    0x1.5cf2619a29eb8p-6,  -0x1.b3a735df089f3p-8,
};

/// 2^-63.0
inline constexpr double tanhF64[] = {
    -0x1.5555555555554p-2,  0x1.1111111110ebep-3,   -0x1.ba1ba1b9ee7cdp-5,
    0x1.664f4875112e6p-6,   -0x1.226e32f3d5e69p-7,  0x1.d6d3471e7dd3fp-9,
    -0x1.7d994c109f2ffp-10, 0x1.34d94e3e7f98fp-11,  -0x1.ed2e642c649d4p-13,
    0x1.6946be30d612cp-14,  -0x1.674145c482934p-16,
};

/// 2^-31.2
inline constexpr double atanShortF64[] = {
    -0x1.5555510455660p-2, 0x1.9997e04a0c6c1p-3,  -0x1.247374e31d811p-3,
    0x1.c4f1f4747deebp-4,  -0x1.68e7486ba9a4fp-4, 0x1.1423756ff7feap-4,
    -0x1.6e1b971f728a5p-5, 0x1.714e81e519422p-6,  -0x1.df9d8ba163815p-8,
    0x1.23fe74bdb5cedp-10,
};

/// 2^-35.8
inline constexpr double asinShortF64[] = {
    0x1.55555605c3549p-3, 0x1.3332aa0c29de7p-4, 0x1.6ddabec5a20bfp-5,
    0x1.ed5d323db2b1fp-6, 0x1.931ef9154c049p-6, 0x1.ec2c295d4e9a1p-8,
    0x1.1bd167aeba2c9p-5,
};

/// 2^-59.4
inline constexpr double atanF64[] = {
    -0x1.555555555553dp-2, 0x1.9999999995869p-3,  -0x1.24924922ad50cp-3,
    0x1.c71c70e607bd3p-4,  -0x1.745cf8db79579p-4, 0x1.3b11190bf348dp-4,
    -0x1.10ebb7a097505p-4, 0x1.df0f434d0e888p-5,  -0x1.9cd2a1013c374p-5,
    0x1.37d5719e14444p-5,  -0x1.256a1475912fap-6,
};

/// 2^-59.9
inline constexpr double asinF64[] = {
    0x1.5555555555577p-3, 0x1.333333332e132p-4, 0x1.6db6db721256dp-5,
    0x1.f1c71a94fa2dep-6, 0x1.6e8bdedf696adp-6, 0x1.1c49f06c2c1b4p-6,
    0x1.ca1f8bff8d3bdp-7, 0x1.7585957630118p-7, 0x1.613c49e4d0c19p-7,
    0x1.e5f98236c9dfdp-9, 0x1.639b369cb2932p-6, -0x1.57fbb265ea44ap-6,
    0x1.0b462a3a4a9f2p-5,
};

/// 2^-63.0
inline constexpr double sinhF64[] = {
    0x1.5555555555555p-3,  0x1.111111111119bp-7,  0x1.a01a01a00735bp-13,
    0x1.71de3a68d03edp-19, 0x1.ae64412270170p-26, 0x1.61314d7e8d49ep-33,
    0x1.a6652ad6ee91ap-41, 0x1.d2a3d5b330a20p-48,
};

/// 2^-34.1
inline constexpr double lgammaShortF64[] = {
    0x1.ccf151e092958p-2,   -0x1.e965863f1ca96p-4,  0x1.6cb6255ef47bbp-5,
    -0x1.382e0879b259ep-6,  0x1.1f955ed9ef790p-7,   -0x1.14fc2ccc5fecep-8,
    0x1.12b360301c4a4p-9,   -0x1.15741cc4ae203p-10, 0x1.1cbcee117e77dp-11,
    -0x1.3270a6b5642c1p-12, 0x1.4532907977eddp-13,  -0x1.ec3bd6378c98cp-15,
    0x1.e422438c44823p-16,  -0x1.685d4bd74bf9dp-15, 0x1.96a65547f87b1p-16,
};

/// 2^-40.1
inline constexpr double lgammaTailShortF64[] = {
    0x1.5555553d45812p-4,   -0x1.6c159a2e0f538p-9, 0x1.9f7415a64a930p-11,
    -0x1.2c6b5870cba23p-11, 0x1.42b022c8e9992p-11, -0x1.05ee5d8a414e2p-11,
};

/// 2^-35.2
inline constexpr double digammaShortF64[] = {
    0x1.b763ca67151e5p-1,   -0x1.4e15b171d23d5p-2,  0x1.41c830923bbf3p-3,
    -0x1.510ab2fa55406p-4,  0x1.6effbb6709d94p-5,   -0x1.97cba92d21a29p-6,
    0x1.ca45eec316514p-7,   -0x1.0345e9b8803c3p-7,  0x1.269bdf231630cp-8,
    -0x1.4dbf3e692292ap-9,  0x1.795e4b19429bep-10,  -0x1.c402be32a8464p-11,
    0x1.14136f4fd7025p-11,  -0x1.d696e446459f3p-13, 0x1.221a794b83f94p-14,
    -0x1.e364dbdbe43d9p-14, 0x1.fc688e1437995p-14,  -0x1.4117d828fc8dcp-15,
};

/// 2^-44.7
inline constexpr double digammaTailShortF64[] = {
    -0x1.55555551a6feap-4, 0x1.1110fb9157dfcp-7,  -0x1.0404e48cc89cbp-8,
    0x1.0f8a0421f78fbp-8,  -0x1.d180d866bae85p-8, 0x1.e8bad5ca5baa1p-7,
    -0x1.b49d202027d21p-6, 0x1.a10ad04006486p-6,
};

/// The distance of the middles of erfPiecesF32.
inline constexpr double erfStepF32 = 0x1.1400000000000p-2;

/// 2^-24.4; for each power, the 16 pieces.
inline constexpr double erfPiecesF32[6][16] = {
    {0x0.0p+0, 0x1.300d7a0000000p-2, 0x1.1bb95c0000000p-1, 0x1.7e8e400000000p-1,
     0x1.bece0e0000000p-1, 0x1.e2fc980000000p-1, 0x1.f4a31e0000000p-1,
     0x1.fc18880000000p-1, 0x1.fed3740000000p-1, 0x1.ffb10e0000000p-1,
     0x1.ffedea0000000p-1, 0x1.fffc640000000p-1, 0x1.ffff600000000p-1,
     0x1.ffffe80000000p-1, 0x1.fffffc0000000p-1, 0x1.0000000000000p+0},
    {0x1.06eba80000000p-3, 0x1.0c9fc00000000p+0, 0x1.b00a480000000p-1,
     0x1.2c73560000000p-1, 0x1.695e8e0000000p-2, 0x1.77dcd80000000p-3,
     0x1.5211ea0000000p-4, 0x1.06f4ce0000000p-5, 0x1.61beaa0000000p-7,
     0x1.9b86660000000p-9, 0x1.9e00720000000p-11, 0x1.682ba20000000p-13,
     0x1.0ef7340000000p-15, 0x1.60931a0000000p-18, 0x1.8cb9780000000p-21,
     0x1.8209700000000p-24},
    {0x1.65107a0000000p-22, -0x1.219a340000000p-2, -0x1.d1c8c20000000p-2,
     -0x1.e5e1940000000p-2, -0x1.859a840000000p-2, -0x1.fa8ac80000000p-3,
     -0x1.115dec0000000p-3, -0x1.f0215c0000000p-5, -0x1.7d5fe80000000p-6,
     -0x1.f3191a0000000p-8, -0x1.16eb540000000p-9, -0x1.0ae12c0000000p-11,
     -0x1.b5fa480000000p-14, -0x1.349a700000000p-16, -0x1.75d2340000000p-19,
     -0x1.858c420000000p-22},
    {-0x1.812c020000000p-2, -0x1.32275c0000000p-2, -0x1.e29af60000000p-4,
     0x1.ece3960000000p-5, 0x1.3f21b00000000p-3, 0x1.49cdb00000000p-3,
     0x1.dcc1900000000p-4, 0x1.0c32960000000p-4, 0x1.e949aa0000000p-6,
     0x1.714c9c0000000p-7, 0x1.d2bb600000000p-9, 0x1.f1906a0000000p-11,
     0x1.c1b46a0000000p-13, 0x1.59d6e40000000p-15, 0x1.c5d1c00000000p-18,
     0x1.fd1b5e0000000p-21},
    {0x1.5715a00000000p-12, 0x1.113c220000000p-3, 0x1.74e2940000000p-3,
     0x1.11077a0000000p-3, 0x1.6172c20000000p-5, -0x1.a1261c0000000p-6,
     -0x1.93374e0000000p-5, -0x1.53ca640000000p-5, -0x1.9157760000000p-6,
     -0x1.6f6eb80000000p-7, -0x1.0f70700000000p-8, -0x1.4a61e80000000p-10,
     -0x1.4f5bc80000000p-12, -0x1.1e29040000000p-14, -0x1.9cce020000000p-17,
     -0x1.f963440000000p-20},
    {0x1.c5c88a0000000p-4, 0x1.37ac860000000p-4, -0x1.a644980000000p-9,
     -0x1.efbb600000000p-5, -0x1.098c6c0000000p-4, -0x1.1919460000000p-5,
     -0x1.8ff94c0000000p-9, 0x1.7adfb20000000p-7, 0x1.8b414e0000000p-7,
     0x1.e704120000000p-8, 0x1.b91b6a0000000p-9, 0x1.3a1e400000000p-10,
     0x1.6ac5dc0000000p-12, 0x1.599ec40000000p-14, 0x1.12928c0000000p-16,
     0x1.6e6f200000000p-19},
};

/// The distance of the middles of normalPiecesF32.
inline constexpr double normalStepF32 = 0x1.7000000000000p-2;

/// 2^-26.1, absolute; for each power, the 16 pieces.
inline constexpr double normalPiecesF32[6][16] = {
    {0x0.0p+0, 0x1.1f6c000000000p-3, 0x1.0e2f5a0000000p-2, 0x1.7023a80000000p-2,
     0x1.b2e7b40000000p-2, 0x1.daf43a0000000p-2, 0x1.f0185c0000000p-2,
     0x1.f9ea960000000p-2, 0x1.fdee6e0000000p-2, 0x1.ff60360000000p-2,
     0x1.ffd5460000000p-2, 0x1.fff5e40000000p-2, 0x1.fffde20000000p-2,
     0x1.ffff9c0000000p-2, 0x1.fffff00000000p-2, 0x1.fffffe0000000p-2},
    {0x1.9884520000000p-2, 0x1.7ef8760000000p-2, 0x1.3b85f60000000p-2,
     0x1.c8eafc0000000p-3, 0x1.22c1020000000p-3, 0x1.4533d00000000p-4,
     0x1.3fa9c40000000p-5, 0x1.1425ea0000000p-6, 0x1.a34ea20000000p-8,
     0x1.17c5780000000p-9, 0x1.481b4c0000000p-11, 0x1.522c080000000p-13,
     0x1.3251320000000p-15, 0x1.e7b1540000000p-18, 0x1.5531e80000000p-20,
     0x1.a391020000000p-23},
    {0x0.0p+0, -0x1.1341040000000p-4, -0x1.c58eac0000000p-4,
     -0x1.ec9c5e0000000p-4, -0x1.a1f5b00000000p-4, -0x1.242d620000000p-4,
     -0x1.58a4720000000p-5, -0x1.5b58e40000000p-6, -0x1.2d60760000000p-7,
     -0x1.c46da20000000p-9, -0x1.26c20c0000000p-10, -0x1.4e27100000000p-12,
     -0x1.4a271e0000000p-14, -0x1.1cacf60000000p-16, -0x1.acdece0000000p-19,
     -0x1.1a71ee0000000p-21},
    {-0x1.1057160000000p-4, -0x1.bcac300000000p-5, -0x1.96bc100000000p-6,
     0x1.8b927e0000000p-8, 0x1.9d67260000000p-6, 0x1.e3323c0000000p-6,
     0x1.84dd9c0000000p-6, 0x1.ea7bc80000000p-7, 0x1.fbc3ac0000000p-8,
     0x1.b92a080000000p-9, 0x1.45c6580000000p-10, 0x1.9c2c820000000p-12,
     0x1.c120680000000p-14, 0x1.a7131e0000000p-16, 0x1.597c140000000p-18,
     0x1.ea2bc20000000p-21},
    {0x0.0p+0, 0x1.0563060000000p-6, 0x1.7501420000000p-6, 0x1.2c7fe20000000p-6,
     0x1.04c0420000000p-7, -0x1.534a180000000p-10, -0x1.774f720000000p-8,
     -0x1.7fd1b00000000p-8, -0x1.08890e0000000p-8, -0x1.1a83520000000p-9,
     -0x1.eb4d200000000p-11, -0x1.644f9c0000000p-12, -0x1.b50e940000000p-14,
     -0x1.c9596e0000000p-16, -0x1.9ab9140000000p-18, -0x1.3de7780000000p-20},
    {0x1.449fd40000000p-7, 0x1.c6ef920000000p-8, 0x1.d458a20000000p-12,
     -0x1.3c23600000000p-8, -0x1.8aee800000000p-8, -0x1.0162140000000p-8,
     -0x1.1b64320000000p-10, 0x1.6d32ce0000000p-11, 0x1.2d8d9a0000000p-10,
     0x1.ce99e80000000p-11, 0x1.fa9a900000000p-12, 0x1.b40fa00000000p-13,
     0x1.32e8880000000p-14, 0x1.68a1460000000p-16, 0x1.6626a80000000p-18,
     0x1.2f16600000000p-20},
};

} // namespace intarsia::coefficients

#endif // INTARSIA_PASSES_CPU_MATHCOEFFICIENTS_H
