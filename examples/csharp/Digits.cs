// Reads a handwritten digit, from C#, by P/Invoke.
//
//     cargo xtask c-library
//     mcs -out:target/Digits.exe examples/csharp/Digits.cs
//     LD_LIBRARY_PATH=target/c/lib mono target/Digits.exe examples/digits.pt2
using System;
using System.Runtime.InteropServices;

static class Litz
{
    public const int Float32 = 6;

    [StructLayout(LayoutKind.Sequential)]
    public struct Tensor
    {
        public IntPtr Data;
        public int Dtype;
        public int Rank;
        public IntPtr Sizes;
        public IntPtr Strides;
    }

    [StructLayout(LayoutKind.Sequential)]
    public struct Memory
    {
        public IntPtr Data;
        public UIntPtr Bytes;
    }

    [DllImport("litz")] static extern IntPtr litz_last_error();
    [DllImport("litz")] public static extern int litz_model_open(string path, string options, IntPtr host, out IntPtr model);
    [DllImport("litz")] public static extern int litz_model_run_into(IntPtr model, Tensor[] inputs, UIntPtr inputCount,
                                                                     Memory[] memories, UIntPtr memoryCount, IntPtr outputs);
    [DllImport("litz")] public static extern void litz_model_close(IntPtr model);

    public static void Expect(int status)
    {
        if (status != 0) throw new InvalidOperationException(Marshal.PtrToStringAnsi(litz_last_error()));
    }
}

static class Digits
{
    // Eight rows of eight pixels, from 0 to 16; the model takes 0 to 1.
    static readonly float[] image = {
        0, 0, 5,  13, 9,  1,  0, 0, 0, 0, 13, 15, 10, 15, 5, 0, 0, 3, 15, 2,  0,  11, 8, 0, 0, 4, 12, 0,  0,  8, 8, 0,
        0, 5, 8,  0,  0,  9,  8, 0, 0, 4, 11, 0,  1,  12, 7, 0, 0, 2, 14, 5,  10, 12, 0, 0, 0, 0, 6,  13, 10, 0, 0, 0,
    };

    static int Main(string[] args)
    {
        IntPtr model;
        Litz.Expect(Litz.litz_model_open(args.Length > 0 ? args[0] : "examples/digits.pt2", "threads=2", IntPtr.Zero, out model));
        for (int at = 0; at < 64; ++at) image[at] /= 16;
        var scores = new float[10];
        var pixels = GCHandle.Alloc(image, GCHandleType.Pinned);
        var sizes = GCHandle.Alloc(new long[] { 1, 1, 8, 8 }, GCHandleType.Pinned);
        var room = GCHandle.Alloc(scores, GCHandleType.Pinned);
        try
        {
            var input = new Litz.Tensor {
                Data = pixels.AddrOfPinnedObject(), Dtype = Litz.Float32, Rank = 4, Sizes = sizes.AddrOfPinnedObject()
            };
            var memory = new Litz.Memory { Data = room.AddrOfPinnedObject(), Bytes = (UIntPtr)(4 * scores.Length) };
            Litz.Expect(Litz.litz_model_run_into(model, new[] { input }, (UIntPtr)1, new[] { memory }, (UIntPtr)1, IntPtr.Zero));
        }
        finally
        {
            room.Free();
            sizes.Free();
            pixels.Free();
            Litz.litz_model_close(model);
        }
        int best = 0;
        for (int digit = 1; digit < 10; ++digit)
            if (scores[digit] > scores[best]) best = digit;
        Console.WriteLine("it is a " + best);
        return 0;
    }
}
