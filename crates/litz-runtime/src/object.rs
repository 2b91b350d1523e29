//! Loads ELF objects: their bytes become code in memory that can be called.
//!
//! Objects come from LLVM a moment ago, from the cache, or from a shipped artifact; whichever it is,
//! a damaged one is an error. The loader lays the sections out in one mapping, binds symbols, applies
//! relocations, and gives each page either the right to be written or the right to be executed.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::ops::Range;

use object::elf;
use object::read::elf::ElfFile64;
use object::read::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SymbolSection};
use object::{Architecture, Endianness, SectionFlags, SectionIndex, SymbolIndex};

use crate::mapping::{Mapping, Protection, page_size};

/// Compiled code, mapped and bound. Pointers from [`LoadedObject::get`] live as long as this value.
pub struct LoadedObject {
    mapping: Mapping,
    symbols: HashMap<String, usize>,
    /// Where in the mapping the code is.
    code: Range<usize>,
}

/// Why an object could not be loaded.
#[derive(Debug)]
pub enum ObjectError {
    /// The bytes are not a well-formed relocatable ELF object.
    Malformed(String),
    /// The object is for another kind of CPU.
    WrongArchitecture(String),
    /// The object needs a symbol that neither it nor the resolver has.
    UnknownSymbol(String),
    /// A relocation type, named by its ELF number, that code for us never has.
    UnknownRelocation(u32),
    /// A relocation's value does not fit its field.
    OutOfRange {
        /// The ELF number of the relocation type.
        relocation: u32,
        /// The symbol it refers to; empty for a section.
        symbol: String,
    },
    /// The system refused memory or its protection.
    Memory(io::Error),
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectError::Malformed(what) => write!(f, "malformed object: {what}"),
            ObjectError::WrongArchitecture(found) => write!(f, "object is for {found}, not for this CPU"),
            ObjectError::UnknownSymbol(name) => write!(f, "object needs unknown symbol `{name}`"),
            ObjectError::UnknownRelocation(kind) => write!(f, "object has unknown relocation type {kind}"),
            ObjectError::OutOfRange { relocation, symbol } => {
                write!(f, "relocation type {relocation} cannot reach `{symbol}`")
            }
            ObjectError::Memory(error) => write!(f, "no memory for code: {error}"),
        }
    }
}

impl std::error::Error for ObjectError {}

impl From<object::Error> for ObjectError {
    fn from(error: object::Error) -> ObjectError {
        ObjectError::Malformed(error.to_string())
    }
}

/// Address of a symbol that the object does not define, such as `memset`.
pub type Resolver<'a> = &'a dyn Fn(&str) -> Option<usize>;

impl LoadedObject {
    /// Maps an object for this CPU and binds its undefined symbols by `resolve`.
    ///
    /// Parsing trusts nothing; running the code trusts whoever compiled it.
    pub fn load(bytes: &[u8], resolve: Resolver<'_>) -> Result<LoadedObject, ObjectError> {
        let image = Image::lay_out(bytes, page_size())?;
        let host = if cfg!(target_arch = "aarch64") { Machine::Aarch64 } else { Machine::X86_64 };
        if image.machine != host {
            return Err(ObjectError::WrongArchitecture(format!("{:?}", image.machine)));
        }
        let mut mapping = Mapping::new(image.len).map_err(ObjectError::Memory)?;
        let base = mapping.start().as_ptr() as u64;
        // SAFETY: nothing has been protected yet.
        let symbols = image.link(base, unsafe { mapping.bytes_mut() }, resolve)?;
        for (range, protection) in
            [(image.code.clone(), Protection::ReadExecute), (image.constants.clone(), Protection::Read)]
        {
            if !range.is_empty() {
                mapping.protect(range, protection).map_err(ObjectError::Memory)?;
            }
        }
        flush_instruction_cache(&mapping, image.code.clone());
        Ok(LoadedObject { mapping, symbols, code: image.code })
    }

    /// Address of a global symbol that the object defines.
    pub fn get(&self, name: &str) -> Option<*const u8> {
        let offset = *self.symbols.get(name)?;
        // SAFETY: linking put every symbol inside the mapping.
        Some(unsafe { self.mapping.start().as_ptr().add(offset) })
    }

    /// Addresses of the code of each global function, by name: up to where the next one begins, or the code ends.
    pub fn functions(&self) -> Vec<(&str, Range<usize>)> {
        let is_code = |offset: &usize| self.code.contains(offset);
        let symbols = self.symbols.iter().filter(|(_, offset)| is_code(offset));
        let mut starts: Vec<(usize, &str)> = symbols.map(|(name, &offset)| (offset, name.as_str())).collect();
        starts.sort_unstable();
        let base = self.mapping.start().as_ptr().addr();
        let ends = starts.iter().skip(1).map(|&(offset, _)| offset).chain([self.code.end]);
        let ends: Vec<usize> = ends.collect();
        starts.iter().zip(ends).map(|(&(start, name), end)| (name, base + start..base + end)).collect()
    }

    /// Names of all global symbols that the object defines, in no particular order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.symbols.keys().map(String::as_str)
    }
}

impl fmt::Debug for LoadedObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedObject").field("symbols", &self.symbols.len()).finish_non_exhaustive()
    }
}

#[cfg(target_arch = "aarch64")]
fn flush_instruction_cache(mapping: &Mapping, code: Range<usize>) {
    unsafe extern "C" {
        fn __clear_cache(start: *mut u8, end: *mut u8);
    }
    // SAFETY: the range is inside the mapping.
    unsafe {
        let start = mapping.start().as_ptr();
        __clear_cache(start.add(code.start), start.add(code.end));
    }
}

#[cfg(not(target_arch = "aarch64"))]
fn flush_instruction_cache(_mapping: &Mapping, _code: Range<usize>) {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Machine {
    X86_64,
    Aarch64,
}

/// A stub or a slot holds one address of 8 bytes; a stub also the jump to it.
const STUB_LEN: usize = 16;
const SLOT_LEN: usize = 8;

/// More than any object of ours by far, and small enough for 32-bit distances.
const MAX_IMAGE_LEN: u64 = 1 << 30;

/// An object with a place for everything: code and stubs, then constants and slots, then data.
struct Image<'a> {
    file: ElfFile64<'a, Endianness>,
    machine: Machine,
    /// Offsets of the loaded sections.
    places: HashMap<SectionIndex, usize>,
    /// Offsets of the jumps to undefined symbols.
    stubs: HashMap<SymbolIndex, usize>,
    /// Offsets of the pointers to symbols that code loads.
    slots: HashMap<SymbolIndex, usize>,
    code: Range<usize>,
    constants: Range<usize>,
    len: usize,
}

/// Which protection a section's pages get.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Code,
    Constants,
    Data,
}

impl<'a> Image<'a> {
    fn lay_out(bytes: &'a [u8], page: usize) -> Result<Image<'a>, ObjectError> {
        let file = ElfFile64::<Endianness>::parse(bytes)?;
        let machine = match file.architecture() {
            Architecture::X86_64 if file.is_little_endian() => Machine::X86_64,
            Architecture::Aarch64 if file.is_little_endian() => Machine::Aarch64,
            other => return Err(ObjectError::WrongArchitecture(format!("{other:?}"))),
        };
        if file.kind() != object::ObjectKind::Relocatable {
            return Err(ObjectError::Malformed(format!(
                "expected a relocatable object, found {:?}",
                file.kind()
            )));
        }
        let mut image = Image {
            file,
            machine,
            places: HashMap::new(),
            stubs: HashMap::new(),
            slots: HashMap::new(),
            code: 0..0,
            constants: 0..0,
            len: 0,
        };
        let (stubs, slots) = image.indirections()?;
        let mut cursor = Cursor { offset: 0 };
        image.place_sections(Group::Code, &mut cursor)?;
        for symbol in stubs {
            image.stubs.insert(symbol, cursor.take(STUB_LEN as u64, STUB_LEN as u64)?);
        }
        image.code = 0..cursor.take(0, page as u64)?;
        image.place_sections(Group::Constants, &mut cursor)?;
        for symbol in slots {
            image.slots.insert(symbol, cursor.take(SLOT_LEN as u64, SLOT_LEN as u64)?);
        }
        image.constants = image.code.end..cursor.take(0, page as u64)?;
        image.place_sections(Group::Data, &mut cursor)?;
        image.len = cursor.take(0, page as u64)?.max(page);
        Ok(image)
    }

    fn place_sections(&mut self, group: Group, cursor: &mut Cursor) -> Result<(), ObjectError> {
        for section in self.file.sections() {
            if group_of(section.flags()) == Some(group) {
                let place = cursor.take(section.size(), section.align().max(1))?;
                self.places.insert(section.index(), place);
            }
        }
        Ok(())
    }

    /// Symbols that need a stub and symbols that need a slot, each once, in order of first use.
    fn indirections(&self) -> Result<(Vec<SymbolIndex>, Vec<SymbolIndex>), ObjectError> {
        let (mut stubs, mut slots) = (Vec::new(), Vec::new());
        for section in self.file.sections().filter(|section| group_of(section.flags()).is_some()) {
            for (_, relocation) in section.relocations() {
                let RelocationTarget::Symbol(index) = relocation.target() else { continue };
                let wanted = match field_of(self.machine, elf_type(relocation.flags())?)? {
                    field if field.uses_slot() => &mut slots,
                    field if field.is_branch() && self.file.symbol_by_index(index)?.is_undefined() => {
                        &mut stubs
                    }
                    _ => continue,
                };
                if !wanted.contains(&index) {
                    wanted.push(index);
                }
            }
        }
        Ok((stubs, slots))
    }

    /// Fills `memory`, which will run at address `base`, and gives the offsets of the global symbols.
    fn link(
        &self,
        base: u64,
        memory: &mut [u8],
        resolve: Resolver<'_>,
    ) -> Result<HashMap<String, usize>, ObjectError> {
        for (&index, &place) in &self.places {
            let data = self.file.section_by_index(index)?.data()?;
            memory[place..place + data.len()].copy_from_slice(data);
        }
        for (&symbol, &place) in &self.stubs {
            let stub = stub(self.machine, self.address_of(symbol, base, resolve)?);
            memory[place..place + STUB_LEN].copy_from_slice(&stub);
        }
        for (&symbol, &place) in &self.slots {
            let address = self.address_of(symbol, base, resolve)?;
            memory[place..place + SLOT_LEN].copy_from_slice(&address.to_le_bytes());
        }
        for &index in self.places.keys() {
            self.relocate_section(index, base, memory, resolve)?;
        }
        self.globals()
    }

    fn relocate_section(
        &self,
        index: SectionIndex,
        base: u64,
        memory: &mut [u8],
        resolve: Resolver<'_>,
    ) -> Result<(), ObjectError> {
        let section = self.file.section_by_index(index)?;
        for (offset, relocation) in section.relocations() {
            let kind = elf_type(relocation.flags())?;
            let field = field_of(self.machine, kind)?;
            let target = match relocation.target() {
                RelocationTarget::Symbol(symbol) if field.uses_slot() => base + self.slots[&symbol] as u64,
                RelocationTarget::Symbol(symbol) => match self.stubs.get(&symbol) {
                    Some(&place) if field.is_branch() => base + place as u64,
                    _ => self.address_of(symbol, base, resolve)?,
                },
                RelocationTarget::Absolute => 0,
                _ => return Err(ObjectError::Malformed("relocation against a section".into())),
            };
            let width = field.width();
            if offset.checked_add(width as u64).is_none_or(|end| end > section.size()) {
                return Err(ObjectError::Malformed(format!("relocation at {offset} is outside its section")));
            }
            let place = self.places[&index] + offset as usize;
            let value = target.wrapping_add_signed(relocation.addend());
            field.write(&mut memory[place..place + width], value, base + place as u64).ok_or_else(|| {
                ObjectError::OutOfRange { relocation: kind.0, symbol: self.target_name(relocation.target()) }
            })?;
        }
        Ok(())
    }

    fn address_of(&self, index: SymbolIndex, base: u64, resolve: Resolver<'_>) -> Result<u64, ObjectError> {
        let symbol = self.file.symbol_by_index(index)?;
        if symbol.is_undefined() {
            let name = symbol.name()?;
            return resolve(name)
                .map(|address| address as u64)
                .ok_or_else(|| ObjectError::UnknownSymbol(name.to_string()));
        }
        Ok(base + self.offset_of(&symbol)? as u64)
    }

    /// Offset of a defined symbol, which may be one past the end of its section.
    fn offset_of<'f>(&'f self, symbol: &impl ObjectSymbol<'f>) -> Result<usize, ObjectError> {
        let malformed = |what: &str| ObjectError::Malformed(format!("symbol {} {what}", symbol.index().0));
        let SymbolSection::Section(index) = symbol.section() else {
            return Err(malformed("is not in a section"));
        };
        let place = self.places.get(&index).ok_or_else(|| malformed("is in a section that is not loaded"))?;
        if symbol.address() > self.file.section_by_index(index)?.size() {
            return Err(malformed("is outside its section"));
        }
        Ok(place + symbol.address() as usize)
    }

    fn globals(&self) -> Result<HashMap<String, usize>, ObjectError> {
        let mut globals = HashMap::new();
        for symbol in self.file.symbols() {
            if symbol.is_global() && symbol.is_definition() {
                globals.insert(symbol.name()?.to_string(), self.offset_of(&symbol)?);
            }
        }
        Ok(globals)
    }

    fn target_name(&self, target: RelocationTarget) -> String {
        let RelocationTarget::Symbol(index) = target else { return String::new() };
        let name = self.file.symbol_by_index(index).and_then(|symbol| symbol.name().map(str::to_string));
        name.unwrap_or_default()
    }
}

struct Cursor {
    offset: u64,
}

impl Cursor {
    /// The next `len` bytes at a multiple of `align`.
    fn take(&mut self, len: u64, align: u64) -> Result<usize, ObjectError> {
        let too_big = || ObjectError::Malformed("sections too big".into());
        if !align.is_power_of_two() || align > 4096 {
            return Err(ObjectError::Malformed(format!("alignment {align}")));
        }
        let start = self.offset.next_multiple_of(align);
        let end = start.checked_add(len).filter(|&end| end <= MAX_IMAGE_LEN).ok_or_else(too_big)?;
        self.offset = end;
        Ok(start as usize)
    }
}

fn group_of(flags: SectionFlags) -> Option<Group> {
    let SectionFlags::Elf { sh_flags, .. } = flags else { return None };
    let has = |flag: elf::SectionFlags| sh_flags.0 & flag.0 != 0;
    if !has(elf::SHF_ALLOC) {
        None
    } else if has(elf::SHF_EXECINSTR) {
        Some(Group::Code)
    } else if has(elf::SHF_WRITE) {
        Some(Group::Data)
    } else {
        Some(Group::Constants)
    }
}

fn elf_type(flags: RelocationFlags) -> Result<elf::RelocationType, ObjectError> {
    match flags {
        RelocationFlags::Elf { r_type } => Ok(r_type),
        _ => Err(ObjectError::Malformed("relocation without an ELF type".into())),
    }
}

/// A jump to an address that may be anywhere.
fn stub(machine: Machine, address: u64) -> [u8; STUB_LEN] {
    let mut stub = [0; STUB_LEN];
    match machine {
        Machine::X86_64 => {
            // jmp *0(%rip); .quad address
            stub[..6].copy_from_slice(&[0xff, 0x25, 0, 0, 0, 0]);
            stub[6..14].copy_from_slice(&address.to_le_bytes());
        }
        Machine::Aarch64 => {
            // ldr x16, .+8; br x16; .quad address
            stub[..4].copy_from_slice(&0x5800_0050u32.to_le_bytes());
            stub[4..8].copy_from_slice(&0xd61f_0200u32.to_le_bytes());
            stub[8..].copy_from_slice(&address.to_le_bytes());
        }
    }
    stub
}

/// How a relocation changes the bytes at its place. `value` is the target's address plus the addend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Field {
    /// Nothing.
    None,
    /// The value, in 8 bytes.
    Absolute64,
    /// The value, in 4 bytes that are zero-extended.
    Absolute32,
    /// The value, in 4 bytes that are sign-extended.
    Signed32,
    /// Distance from the place, in 8 bytes.
    Relative64,
    /// Distance from the place, in 4 bytes.
    Relative32,
    /// As `Relative32`, of a call or jump.
    Branch32,
    /// As `Relative32`, to the symbol's slot.
    Slot32,
    /// AArch64 `adr`: distance in bytes.
    Adr,
    /// AArch64 `adrp`: distance in pages of 4 KiB.
    AdrPage,
    /// As `AdrPage`, to the symbol's slot.
    SlotPage,
    /// AArch64 immediate: the low 12 bits, divided by the access size of `1 << shift` bytes.
    Low12 { shift: u32 },
    /// As `Low12` with shift 3, of the symbol's slot.
    SlotLow12,
    /// AArch64 `b` and `bl`: distance in words, 26 bits.
    Branch26,
    /// AArch64 `b.cond`: distance in words, 19 bits.
    Conditional19,
}

/// The relocation types that LLVM emits for position-independent code in the small code model.
fn field_of(machine: Machine, kind: elf::RelocationType) -> Result<Field, ObjectError> {
    let field = match machine {
        Machine::X86_64 => match kind {
            elf::R_X86_64_NONE => Field::None,
            elf::R_X86_64_64 => Field::Absolute64,
            elf::R_X86_64_32 => Field::Absolute32,
            elf::R_X86_64_32S => Field::Signed32,
            elf::R_X86_64_PC64 => Field::Relative64,
            elf::R_X86_64_PC32 => Field::Relative32,
            elf::R_X86_64_PLT32 => Field::Branch32,
            elf::R_X86_64_GOTPCREL | elf::R_X86_64_GOTPCRELX | elf::R_X86_64_REX_GOTPCRELX => Field::Slot32,
            other => return Err(ObjectError::UnknownRelocation(other.0)),
        },
        Machine::Aarch64 => match kind {
            elf::R_AARCH64_NONE => Field::None,
            elf::R_AARCH64_ABS64 => Field::Absolute64,
            elf::R_AARCH64_ABS32 => Field::Absolute32,
            elf::R_AARCH64_PREL64 => Field::Relative64,
            elf::R_AARCH64_PREL32 => Field::Relative32,
            elf::R_AARCH64_ADR_PREL_LO21 => Field::Adr,
            elf::R_AARCH64_ADR_PREL_PG_HI21 => Field::AdrPage,
            elf::R_AARCH64_ADD_ABS_LO12_NC | elf::R_AARCH64_LDST8_ABS_LO12_NC => Field::Low12 { shift: 0 },
            elf::R_AARCH64_LDST16_ABS_LO12_NC => Field::Low12 { shift: 1 },
            elf::R_AARCH64_LDST32_ABS_LO12_NC => Field::Low12 { shift: 2 },
            elf::R_AARCH64_LDST64_ABS_LO12_NC => Field::Low12 { shift: 3 },
            elf::R_AARCH64_LDST128_ABS_LO12_NC => Field::Low12 { shift: 4 },
            elf::R_AARCH64_ADR_GOT_PAGE => Field::SlotPage,
            elf::R_AARCH64_LD64_GOT_LO12_NC => Field::SlotLow12,
            elf::R_AARCH64_CALL26 | elf::R_AARCH64_JUMP26 => Field::Branch26,
            elf::R_AARCH64_CONDBR19 => Field::Conditional19,
            other => return Err(ObjectError::UnknownRelocation(other.0)),
        },
    };
    Ok(field)
}

impl Field {
    fn uses_slot(self) -> bool {
        matches!(self, Field::Slot32 | Field::SlotPage | Field::SlotLow12)
    }

    fn is_branch(self) -> bool {
        matches!(self, Field::Branch32 | Field::Branch26)
    }

    /// Bytes read or written.
    fn width(self) -> usize {
        match self {
            Field::None => 0,
            Field::Absolute64 | Field::Relative64 => 8,
            Field::Absolute32
            | Field::Signed32
            | Field::Relative32
            | Field::Branch32
            | Field::Slot32
            | Field::Adr
            | Field::AdrPage
            | Field::SlotPage
            | Field::Low12 { .. }
            | Field::SlotLow12
            | Field::Branch26
            | Field::Conditional19 => 4,
        }
    }

    /// Writes the field at address `place`; `None` when the value does not fit.
    fn write(self, bytes: &mut [u8], value: u64, place: u64) -> Option<()> {
        let distance = value.wrapping_sub(place).cast_signed();
        match self {
            Field::None => {}
            Field::Absolute64 => bytes.copy_from_slice(&value.to_le_bytes()),
            Field::Relative64 => bytes.copy_from_slice(&distance.to_le_bytes()),
            Field::Absolute32 => bytes.copy_from_slice(&u32::try_from(value).ok()?.to_le_bytes()),
            Field::Signed32 => bytes.copy_from_slice(&i32::try_from(value.cast_signed()).ok()?.to_le_bytes()),
            Field::Relative32 | Field::Branch32 | Field::Slot32 => {
                bytes.copy_from_slice(&i32::try_from(distance).ok()?.to_le_bytes());
            }
            Field::Adr => insert_adr(bytes, signed_bits(distance, 21)?),
            Field::AdrPage | Field::SlotPage => {
                let pages = (value >> 12).wrapping_sub(place >> 12).cast_signed();
                insert_adr(bytes, signed_bits(pages, 21)?);
            }
            Field::Low12 { shift } => insert_low12(bytes, value, shift)?,
            Field::SlotLow12 => insert_low12(bytes, value, 3)?,
            Field::Branch26 => insert_bits(bytes, 0x03ff_ffff, signed_bits(words(distance)?, 26)?),
            Field::Conditional19 => insert_bits(bytes, 0x00ff_ffe0, signed_bits(words(distance)?, 19)? << 5),
        }
        Some(())
    }
}

fn words(distance: i64) -> Option<i64> {
    (distance % 4 == 0).then_some(distance / 4)
}

/// The low `bits` bits of a number that fits them.
fn signed_bits(value: i64, bits: u32) -> Option<u32> {
    let limit = 1i64 << (bits - 1);
    (-limit..limit).contains(&value).then_some(value as u32 & ((1 << bits) - 1))
}

fn insert_adr(bytes: &mut [u8], value: u32) {
    insert_bits(bytes, 0x60ff_ffe0, (value & 3) << 29 | (value >> 2) << 5);
}

fn insert_low12(bytes: &mut [u8], value: u64, shift: u32) -> Option<()> {
    let low = value as u32 & 0xfff;
    if low & ((1 << shift) - 1) != 0 {
        return None;
    }
    insert_bits(bytes, 0x003f_fc00, (low >> shift) << 10);
    Some(())
}

/// Replaces the bits of an instruction that `mask` covers.
fn insert_bits(bytes: &mut [u8], mask: u32, bits: u32) {
    let word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    bytes.copy_from_slice(&((word & !mask) | bits).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The word `before` at address `place`, relocated to `value`.
    fn relocated(field: Field, before: u32, value: u64, place: u64) -> Option<u32> {
        let mut bytes = before.to_le_bytes();
        field.write(&mut bytes, value, place)?;
        Some(u32::from_le_bytes(bytes))
    }

    /// Expected words are what an assembler writes for the instruction named beside them.
    #[test]
    fn aarch64_fields_keep_the_rest_of_the_instruction() {
        let cases = [
            (Field::Branch26, 0x9400_0000, 0x2000, 0x1000, 0x9400_0400), // bl .+0x1000
            (Field::Branch26, 0x1400_0000, 0x1000, 0x1004, 0x17ff_ffff), // b .-4
            (Field::Conditional19, 0x5400_0001, 0x1010, 0x1000, 0x5400_0081), // b.ne .+16
            (Field::AdrPage, 0x9000_0001, 0x7123, 0x1ffc, 0xd000_0021),  // adrp x1, .+0x6000
            (Field::Adr, 0x1000_0000, 0x1005, 0x1000, 0x3000_0020),      // adr x0, .+5
            (Field::Low12 { shift: 0 }, 0x9100_0000, 0x7123, 0, 0x9104_8c00), // add x0, x0, #0x123
            (Field::Low12 { shift: 4 }, 0x3dc0_0000, 0x7120, 0, 0x3dc0_4800), // ldr q0, [x0, #0x120]
            (Field::SlotLow12, 0xf940_0000, 0x7128, 0, 0xf940_9400),     // ldr x0, [x0, #0x128]
        ];
        for (field, before, value, place, after) in cases {
            assert_eq!(relocated(field, before, value, place), Some(after), "{field:?} to {value:#x}");
        }
    }

    #[test]
    fn values_that_do_not_fit_are_refused() {
        assert_eq!(relocated(Field::Relative32, 0, 0x1000, 0x1004), Some(0xffff_fffc));
        assert_eq!(relocated(Field::Relative32, 0, 1 << 40, 0), None);
        assert_eq!(relocated(Field::Absolute32, 0, 0xffff_ffff, 0), Some(0xffff_ffff));
        assert_eq!(relocated(Field::Absolute32, 0, 1 << 32, 0), None);
        assert_eq!(relocated(Field::Signed32, 0, 0xffff_ffff, 0), None);
        assert_eq!(relocated(Field::Signed32, 0, u64::MAX, 0), Some(0xffff_ffff));
        assert_eq!(relocated(Field::Branch26, 0, 1 << 28, 0), None);
        assert_eq!(relocated(Field::Branch26, 0, 2, 0), None);
        assert_eq!(relocated(Field::Low12 { shift: 3 }, 0, 0x7124, 0), None);
    }

    #[test]
    fn stubs_hold_the_whole_address() {
        let address = 0x1122_3344_5566_7788u64;
        assert_eq!(stub(Machine::X86_64, address)[6..14], address.to_le_bytes());
        assert_eq!(stub(Machine::Aarch64, address)[8..], address.to_le_bytes());
    }
}
