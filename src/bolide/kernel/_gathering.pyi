from bolide.kernel.gathering import gather as gather
