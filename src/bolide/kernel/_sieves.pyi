from bolide.kernel.sieves import Sieve as Sieve
